"""Exports of Nsight Systems as its versions make them, small, for tests."""

from __future__ import annotations

import sqlite3
from contextlib import closing

PID = 4242
PROCESS = (1 << 48) | (PID << 24)
"""A globalPid: the first virtual machine's process."""
THREAD = PROCESS | 4243

KERNEL = {
    "start": 1000, "end": 3000, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 11,
    "globalPid": PROCESS, "demangledName": 1, "shortName": 2, "registersPerThread": 40,
    "gridX": 8, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1,
    "staticSharedMemory": 1024, "dynamicSharedMemory": 4096, "graphNodeId": None,
}  # fmt: skip
COPY = {
    "start": 500, "end": 900, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 10,
    "globalPid": PROCESS, "bytes": 4096, "copyKind": 1, "srcKind": 0, "dstKind": 2,
}  # fmt: skip
MEMSET = {
    "start": 3000, "end": 3100, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 12,
    "globalPid": PROCESS, "value": 0, "bytes": 256, "memKind": 2,
}  # fmt: skip
CALL = {
    "start": 100, "end": 400, "eventClass": 0, "globalTid": THREAD, "correlationId": 11,
    "nameId": 3, "returnValue": 0,
}  # fmt: skip
SYNCHRONIZATION = {
    "start": 400, "end": 3100, "deviceId": 0, "contextId": 1, "streamId": 2**32 - 1,
    "correlationId": 13, "globalPid": PROCESS, "syncType": 4, "eventId": 2**32 - 1,
}  # fmt: skip
RANGE = {
    "start": 50,
    "end": 3200,
    "eventType": 59,
    "text": "step",
    "globalTid": THREAD,
    "textId": None,
}
SYSTEM_CALL = {
    "start": 1200, "end": 1700, "eventClass": 27, "globalTid": THREAD, "nameId": 5,
    "returnValue": 1, "nestingLevel": 0,
}  # fmt: skip
MPI_CALL = {"start": 1200, "end": 1700, "globalTid": THREAD, "textId": 8}
SAMPLE = {"id": 1, "start": 1500, "cpu": 3, "threadState": 1, "globalTid": THREAD, "cpuCycles": 1}
FRAME = {
    "id": 1, "symbol": 6, "module": 7, "kernelMode": 0, "thumbCode": 0, "unresolved": 0,
    "specialEntry": None, "originalIP": 4096, "unwindMethod": 7, "stackDepth": 0,
}  # fmt: skip
GPU = {
    "id": 0, "name": "NVIDIA A40", "cuDevice": 0, "uuid": "1-2", "l2CacheSize": 6291456,
    "totalMemory": 47622258688, "memoryBandwidth": 696096000000, "clockRate": 1740000000,
    "smCount": 84, "maxShmemPerBlockOptin": 101376, "maxShmemPerSm": 102400,
    "maxRegistersPerSm": 65536, "threadsPerWarp": 32, "maxWarpsPerSm": 48, "computeMajor": 8,
    "computeMinor": 6,
}  # fmt: skip
STRINGS = [
    {"id": 1, "value": "void gemm<float>(float*)"},
    {"id": 2, "value": "gemm"},
    {"id": 3, "value": "cudaLaunchKernel_v7000"},
    {"id": 4, "value": "named by number"},
    {"id": 5, "value": "poll"},
    {"id": 6, "value": "parse_line"},
    {"id": 7, "value": "/home/me/lib/libparse.so"},
    {"id": 8, "value": "MPI_Recv"},
]
PREFIX = "CUPTI_ACTIVITY_KIND_"


def tables(**changed):
    """The tables of a small export, with some of them changed; None for one that is left out."""
    whole = {
        "META_DATA_EXPORT": [
            {"name": "EXPORT_PRODUCT_NAME", "value": "NVIDIA Nsight Systems"},
            {"name": "EXPORT_PRODUCT_VERSION", "value": "2026.1.1"},
        ],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 10**18}],
        "TARGET_INFO_GPU": [GPU],
        "PROCESSES": [{"globalPid": PROCESS, "pid": PID, "name": "python"}],
        "StringIds": STRINGS,
        f"{PREFIX}KERNEL": [KERNEL],
        f"{PREFIX}MEMCPY": [COPY],
        f"{PREFIX}MEMSET": [MEMSET],
        f"{PREFIX}RUNTIME": [CALL],
        f"{PREFIX}SYNCHRONIZATION": [SYNCHRONIZATION],
        "NVTX_EVENTS": [RANGE],
    }
    return {name: rows for name, rows in {**whole, **changed}.items() if rows is not None}


def write(path, contents):
    """Write tables, given as lists of rows by column, to a SQLite file."""
    with closing(sqlite3.connect(path)) as connection:
        for table, rows in contents.items():
            names = list(rows[0])
            connection.execute(f"CREATE TABLE {table} ({', '.join(map(_quoted, names))})")
            places = ", ".join("?" * len(names))
            connection.executemany(
                f"INSERT INTO {table} VALUES ({places})", [[row[n] for n in names] for row in rows]
            )
        connection.commit()
    return path


def without(row, *columns):
    """A row as a version without some columns has it."""
    return {name: cell for name, cell in row.items() if name not in columns}


def _quoted(name):
    return f'"{name}"'
