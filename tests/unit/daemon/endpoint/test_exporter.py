"""What a scrape sees: read back by Prometheus' own parsers, over real HTTP."""

import http.client
import json
import math
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as families

from gpuadvisor.daemon import bounded_server
from gpuadvisor.daemon.configuration import Prometheus
from gpuadvisor.daemon.configured_values import Address
from gpuadvisor.daemon.endpoint.exporter import CLIENTS, Exporter
from gpuadvisor.daemon.endpoint.exposition import GPU_EXPORTED, HOST_EXPORTED, Exposition
from gpuadvisor.daemon.endpoint.exposition_text import encoder
from gpuadvisor.daemon.figures import Figures
from gpuadvisor.domain.metrics import GPU_METRICS, HOST_METRICS
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import (
    HOST,
    SILENT,
    Event,
    Frame,
    Gpu,
    GpuProcess,
    Sample,
    State,
    Unavailable,
)
from gpuadvisor.errors import AdvisorError, UsageError

NOW_S = 1_700_000_000.0
H100 = Gpu("GPU-a", 0, 'H100 "80GB"\nHBM3', 80 << 30, "00000000:01:00.0", (9, 0))
LOST = Gpu("GPU-b", 1, "H100", 80 << 30)
XID = Event("xid", NOW_S, "Xid 31.", Severity.ERROR, "GPU-a", NOW_S, "31", {"xid": 31})
VALUES = {metric.name: 50 for metric in GPU_METRICS}
MISSING = {
    "fan_pct": Unavailable(State.NOT_SUPPORTED, NOW_S - 9),
    "sm_active_pct": Unavailable(State.STALE, NOW_S - 9, "does not answer"),
    "throttle_reasons": Unavailable(State.NO_PERMISSION, NOW_S - 9),
}
GONE = {metric.name: Unavailable(State.LOST, NOW_S - 9) for metric in GPU_METRICS}


@pytest.fixture
def figures():
    made = Figures()
    healthy = {name: value for name, value in VALUES.items() if name not in MISSING}
    first = {
        H100.uuid: Sample({**VALUES, "throttle_reasons": 0x4}),
        LOST.uuid: Sample(VALUES),
        HOST: Sample({metric.name: 50 for metric in HOST_METRICS}),
    }
    processes = (
        GpuProcess(H100.uuid, 71, "compute", 5 << 30, "python", "ada", container="4f2a"),
        GpuProcess(H100.uuid, 72, "compute", None, None),
    )
    made.observe(Frame(NOW_S - 1, first, gpus=(H100, LOST), processes=processes))
    second = {H100.uuid: Sample(healthy, MISSING), LOST.uuid: Sample({}, GONE)}
    made.observe(Frame(NOW_S, second, events=(XID,)))
    return made


def collected(figures, now_s=NOW_S, **chosen):
    return Exposition(figures, Prometheus(**chosen), clock=lambda: now_s)


def series(figures, **more):
    """Return name -> list of (labels, value), through Prometheus' own parser."""
    text = generate_latest(collected(figures, **more)).decode()
    found = {}
    for family in families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def of_gpu(found, name, uuid="GPU-a"):
    return [value for labels, value in found.get(name, []) if labels.get("uuid") == uuid]


UNITS = {
    "gpuadvisor_gpu_utilization_ratio": 0.5,
    "gpuadvisor_memory_used_bytes": 50,
    "gpuadvisor_power_watts": 50,
    "gpuadvisor_sm_clock_hertz": 50e6,
    "gpuadvisor_temperature_celsius": 50,
    "gpuadvisor_energy_joules_total": 50,
    "gpuadvisor_power_violation_seconds_total": 50,
    "gpuadvisor_pcie_tx_bytes_per_second": 50,
    "gpuadvisor_ecc_uncorrected_volatile_total": 50,
}


@pytest.mark.parametrize(("name", "value"), UNITS.items())
def test_base_units(figures, name, value):
    assert of_gpu(series(figures), name) == [value]


def test_labels(figures):
    ((labels, _), *_) = series(figures)["gpuadvisor_power_watts"]
    assert labels == {"gpu": "0", "uuid": "GPU-a", "name": 'H100 "80GB"\nHBM3'}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_not_ok_is_absent_and_says_why(figures, name):
    (each,) = [e for e in GPU_EXPORTED if e.metric.name == name]
    found = series(figures)
    assert of_gpu(found, each.full_name) == []
    states = {
        labels["state"]
        for labels, _ in found["gpuadvisor_metric_state"]
        if labels["uuid"] == "GPU-a" and labels["metric"] == each.full_name
    }
    assert states == {str(MISSING[name].state)}


def test_a_lost_gpu_has_states_and_no_values(figures):
    found = series(figures)
    named = {name for name in found if of_gpu(found, name, "GPU-b")}
    assert named == {"gpuadvisor_metric_state", "gpuadvisor_gpu_info"}


def test_an_ok_metric_has_no_state(figures):
    states = series(figures)["gpuadvisor_metric_state"]
    of_healthy = [labels["metric"] for labels, _ in states if labels["uuid"] == "GPU-a"]
    assert len(of_healthy) == len(MISSING)


def test_frames_that_stop_make_values_stale_in_the_next_scrape(figures):
    found = series(figures, now_s=NOW_S + 600)
    assert "gpuadvisor_power_watts" not in found
    assert {labels["state"] for labels, _ in found["gpuadvisor_metric_state"]} >= {"stale"}


def test_throttle_reasons_one_by_one():
    figures = Figures()
    sample = Sample({"throttle_reasons": 0x44})
    figures.observe(Frame(NOW_S, {H100.uuid: sample}, gpus=(H100,)))
    reasons = {labels["reason"]: v for labels, v in series(figures)["gpuadvisor_throttled"]}
    assert reasons.pop("sw_power_cap") == reasons.pop("hw_thermal_slowdown") == 1
    assert set(reasons.values()) == {0}


def test_the_machine(figures):
    found = series(figures)
    assert found["gpuadvisor_host_cpu_ratio"] == [({}, 0.5)]
    assert found["gpuadvisor_host_memory_used_bytes"] == [({}, 50)]
    assert not any("_host_" in name for name in series(figures, host_metrics=False))


def test_processes_only_where_asked_for(figures):
    assert "gpuadvisor_process_memory_bytes" not in series(figures)
    ((labels, value),) = series(figures, processes=True)["gpuadvisor_process_memory_bytes"]
    assert value == 5 << 30
    assert (labels["pid"], labels["user"], labels["container"]) == ("71", "ada", "4f2a")


@pytest.mark.parametrize(("problem", "after_s"), [(SILENT, 1), (None, 20)])
def test_processes_that_were_listed_long_ago_are_not_those_of_now(figures, problem, after_s):
    """While the driver hangs, and where it lists none any more."""
    figures.observe(Frame(NOW_S - 1 + after_s, problem=problem))
    later = series(figures, processes=True, now_s=NOW_S - 1 + after_s)
    assert "gpuadvisor_process_memory_bytes" not in later


def test_events_and_own_cost(figures):
    found = series(figures)
    kinds = {labels["kind"]: value for labels, value in found["gpuadvisor_events_total"]}
    assert kinds["xid"] == 1
    assert kinds["gpu_lost"] == 1
    assert kinds["gap"] == 0
    processes = {labels["process"] for labels, _ in found["gpuadvisor_daemon_cpu_seconds_total"]}
    assert "daemon" in processes
    assert found["gpuadvisor_daemon_frames_total"] == [({}, 2)]
    assert found["gpuadvisor_driver_up"] == [({}, 1)]


def test_an_event_is_counted_once_though_it_is_told_twice():
    figures = Figures()
    figures.observe(Frame(NOW_S, problem="No driver."))
    figures.observe(Frame(NOW_S + 1))
    kinds = {ls["kind"]: value for ls, value in series(figures)["gpuadvisor_events_total"]}
    assert kinds["driver"] == 1


def test_dcgm_names(figures):
    assert not any(name.startswith("DCGM") for name in series(figures))
    found = series(figures, dcgm_names=True)
    ((labels, value),) = found["DCGM_FI_DEV_FB_USED"]
    assert value == 50 / 2**20
    expected = {"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname"}
    assert set(labels) == expected | {"DCGM_FI_DRIVER_VERSION"}
    assert (labels["gpu"], labels["UUID"], labels["device"]) == ("0", "GPU-a", "nvidia0")
    assert found["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"][0][1] == 50_000
    assert found["DCGM_FI_PROF_GR_ENGINE_ACTIVE"][0][1] == 0.5


DCGM_DEFAULTS = [
    "SM_CLOCK",
    "MEM_CLOCK",
    "MEMORY_TEMP",
    "GPU_TEMP",
    "POWER_USAGE",
    "TOTAL_ENERGY_CONSUMPTION",
    "PCIE_TX_THROUGHPUT",
    "PCIE_RX_THROUGHPUT",
    "PCIE_REPLAY_COUNTER",
    "GPU_UTIL",
    "MEM_COPY_UTIL",
    "ENC_UTIL",
    "DEC_UTIL",
    "XID_ERRORS",
    "FB_FREE",
    "FB_USED",
    "NVLINK_BANDWIDTH_TOTAL",
    "UNCORRECTABLE_REMAPPED_ROWS",
    "CORRECTABLE_REMAPPED_ROWS",
    "ROW_REMAP_FAILURE",
]
"""DCGM_FI_DEV_... of dcgm-exporter's etc/default-counters.csv, without VGPU_LICENSE_STATUS."""


def test_all_default_counters_of_dcgm_exporter_are_there(figures):
    found = series(figures, dcgm_names=True)
    assert {f"DCGM_FI_DEV_{name}" for name in DCGM_DEFAULTS} - set(found) == set()


def test_traffic_is_in_the_units_of_dcgm():
    figures = Figures()
    values = {
        "pcie_tx_bytes_per_s": 7 * 1024,
        "nvlink_tx_bytes_per_s": 3 * 1024_000,
        "nvlink_rx_bytes_per_s": 4 * 1024_000,
    }
    one_way = {"nvlink_tx_bytes_per_s": 1}
    samples = {H100.uuid: Sample(values), LOST.uuid: Sample(one_way)}
    figures.observe(Frame(NOW_S, samples, gpus=(H100, LOST)))
    found = series(figures, dcgm_names=True)
    for name, value in (("PCIE_TX_THROUGHPUT", 7), ("NVLINK_BANDWIDTH_TOTAL", 7)):
        ((labels, seen),) = found[f"DCGM_FI_DEV_{name}"]
        assert (labels["gpu"], seen) == ("0", pytest.approx(value))
    assert "DCGM_FI_DEV_PCIE_RX_THROUGHPUT" not in found


def test_an_xid_error_names_its_gpu(figures):
    figures.observe(Frame(NOW_S + 1, events=(XID,)))
    xid_79 = replace(XID, key="79", data={"xid": 79})
    figures.observe(Frame(NOW_S + 2, events=(xid_79,)))
    found = series(figures, dcgm_names=True, now_s=NOW_S + 2)
    counted = {
        (labels["uuid"], labels["gpu"], labels["xid"]): value
        for labels, value in found["gpuadvisor_xid_errors_total"]
    }
    assert counted == {("GPU-a", "0", "31"): 2, ("GPU-a", "0", "79"): 1}
    last = {labels["UUID"]: value for labels, value in found["DCGM_FI_DEV_XID_ERRORS"]}
    assert last == {"GPU-a": 79, "GPU-b": 0}


def test_openmetrics_can_be_parsed_as_well(figures):
    exposition = collected(figures, dcgm_names=True, processes=True)
    text = openmetrics.generate_latest(exposition).decode()
    assert {family.name for family in open_families(text)} >= {"gpuadvisor_energy_joules"}


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "text/plain;version=0.0.4",
        "text/plain;version=1.0.0;escaping=allow-utf-8",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;q=0.3",
        "application/openmetrics-text;version=0.0.1",
        "application/openmetrics-text;version=1.0.0;escaping=dots",
        "application/openmetrics-text;version=1.0.0;escaping=values",
    ],
)
def test_the_bytes_are_those_of_prometheus_clients_own_writers(figures, accept):
    odd = GpuProcess(H100.uuid, 73, "compute", 2**60 + 1, 'a "b" \\c\n', "\u00e9", container="")
    figures.observe(Frame(NOW_S, {H100.uuid: Sample({"power_w": math.inf})}, processes=(odd,)))
    exposition = collected(figures, dcgm_names=True, processes=True)
    theirs, kind = choose_encoder(accept)
    ours, same = encoder(accept)
    without_cpu = [
        [line for line in each(exposition).splitlines() if b"_daemon_" not in line]
        for each in (ours, theirs)
    ]
    assert same == kind
    assert without_cpu[0] == without_cpu[1]


def test_before_the_first_frame_there_is_nothing_to_invent():
    found = series(Figures())
    assert found["gpuadvisor_driver_up"] == [({}, 0)]
    assert "gpuadvisor_last_frame_timestamp_seconds" not in found


ABBREVIATED = r"_(pct|mhz|mib|ms|w|j|c|s|percent|kilo\w*|milli\w*|mega\w*)(_|$)"


def test_names_keep_the_rules_of_prometheus():
    for each in (*GPU_EXPORTED, *HOST_EXPORTED):
        name = each.full_name
        assert re.fullmatch(r"gpuadvisor_[a-z][a-z0-9_]*", name)
        assert name.endswith("_total") == each.is_counter, name
        assert not re.search(ABBREVIATED, name)
        assert each.metric.help, name


def test_names_are_unique():
    names = [each.full_name for each in (*GPU_EXPORTED, *HOST_EXPORTED)]
    assert len(set(names)) == len(names)


# -- over HTTP ---------------------------------------------------------------------------------


@pytest.fixture
def serve(figures):
    made = []

    def start(host="127.0.0.1", **chosen):
        made.append(Exporter(figures, Prometheus(address=Address(f"{host}:0"), **chosen)))
        return made[-1]

    yield start
    for each in made:
        each.close()


def get(url, **headers):
    request = urllib.request.Request(
        url, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_a_scrape(serve):
    url = serve().url
    status, kind, text = get(url)
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert any(f.name == "gpuadvisor_daemon_frames" for f in families(text))
    status, kind, text = get(url, Accept="application/openmetrics-text; version=1.0.0")
    assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith("# EOF\n")


def test_other_paths(serve):
    root = serve().url.removesuffix("/metrics")
    assert get(f"{root}/")[0] == 200
    assert get(f"{root}/etc/passwd")[0] == 404


METHODS = {
    "HEAD": (200, True, 0),
    "POST": (501, False, len("Only GET and HEAD are served.\n")),
    "OPTIONS": (501, False, len("Only GET and HEAD are served.\n")),
}


@pytest.mark.parametrize(("method", "expected"), METHODS.items(), ids=METHODS)
def test_other_methods(method, expected, serve):
    connection = http.client.HTTPConnection(serve().url.split("/")[2], timeout=60)
    connection.request(method, "/metrics")
    answer = connection.getresponse()
    is_long = int(answer.headers["Content-Length"]) > 10_000
    assert (answer.status, is_long, len(answer.read())) == expected
    connection.close()


TOKENS = {
    "none": ({}, 401),
    "a wrong one": ({"Authorization": "Bearer wrong"}, 401),
    "another scheme": ({"Authorization": "Basic s3cret"}, 401),
    "no ASCII": ({"Authorization": "Bearer \xff"}, 401),
    "the right one": ({"Authorization": "Bearer s3cret"}, 200),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """The address of an exporter with a token; each takes half a second to end."""
    path = tmp_path_factory.mktemp("guarded") / "token"
    path.write_text("s3cret\n")
    exporter = Exporter(Figures(), Prometheus(Address("127.0.0.1:0"), str(path)))
    yield exporter.url
    exporter.close()


@pytest.mark.parametrize(("headers", "status"), TOKENS.values(), ids=TOKENS)
def test_token(headers, status, guarded):
    assert get(guarded, **headers)[0] == status


def test_token_from_the_environment(serve, monkeypatch):
    monkeypatch.setenv("SCRAPE_TOKEN", "s3cret")
    url = serve(token_variable="SCRAPE_TOKEN").url
    assert get(url)[0] == 401
    assert get(url, Authorization="Bearer s3cret")[0] == 200


def test_a_token_that_is_missing_is_a_sentence(serve, tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        serve(token_file=str(tmp_path / "none"))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(UsageError, match="is empty"):
        serve(token_file=str(tmp_path / "empty"))


def test_an_address_that_is_taken_is_a_sentence(figures, serve):
    taken = int(serve().url.split(":")[2].partition("/")[0])
    with pytest.raises(AdvisorError, match=f"127.0.0.1:{taken} is taken by another program"):
        Exporter(figures, Prometheus(Address(f"127.0.0.1:{taken}")))


def test_an_open_address_without_token_is_warned_of(serve, caplog):
    serve(host="0.0.0.0")
    assert "is open to everybody who can reach it" in caplog.text


def test_clients_that_say_nothing_block_neither_the_daemon_nor_each_other(serve, figures):
    url = serve().url
    port = int(url.split(":")[2].partition("/")[0])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(CLIENTS - 1)]
    try:
        assert get(url)[0] == 200
        figures.observe(Frame(NOW_S + 1))
    finally:
        for client in silent:
            client.close()


def test_too_many_clients_are_told_to_come_again(serve):
    url = serve().url
    port = int(url.split(":")[2].partition("/")[0])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(CLIENTS)]
    try:
        for _ in range(3):
            assert get(url)[0] == 503
    finally:
        for client in silent:
            client.close()


def drips(client, ended):
    """Send a byte of a request now and then, and never its end."""
    with client:
        while not ended.wait(0.05):
            try:
                client.send(b"G")
            except OSError:
                return


def test_clients_that_drip_are_cut_after_a_whole_request(serve, monkeypatch):
    monkeypatch.setattr(bounded_server, "REQUEST_S", 2.0)
    monkeypatch.setattr(bounded_server, "LOOK_S", 0.05)
    url = serve().url
    port = int(url.split(":")[2].partition("/")[0])
    ended = threading.Event()
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(CLIENTS)]
    clients = [threading.Thread(target=drips, args=(each, ended)) for each in sockets]
    for client in clients:
        client.start()
    try:
        for awaited in (503, 200):  # a busy machine takes a while to accept them all
            ends_s = time.monotonic() + 60
            while (seen := get(url)[0]) != awaited and time.monotonic() < ends_s:
                time.sleep(0.05)
            assert seen == awaited
        for client in clients:
            client.join(60)
        assert not any(client.is_alive() for client in clients)
    finally:
        ended.set()


# -- the dashboard -----------------------------------------------------------------------------

DASHBOARD = Path(__file__).parents[4] / "docs" / "grafana" / "gpuadvisor.json"
NAMED = sorted(set(re.findall(r"gpuadvisor_[a-z0-9_]+", DASHBOARD.read_text("utf-8"))))


@pytest.fixture(scope="module")
def everything():
    """The names of all series that a machine without any trouble can have."""
    figures = Figures()
    sample = Sample(VALUES, {"fan_pct": Unavailable(State.NOT_SUPPORTED, NOW_S)})
    host = Sample({metric.name: 50 for metric in HOST_METRICS})
    process = GpuProcess(H100.uuid, 71, "compute", 5 << 30, "python")
    seen = Frame(NOW_S, {H100.uuid: sample, HOST: host}, gpus=(H100,), processes=(process,))
    figures.observe(seen)
    return set(series(figures, processes=True))


def test_the_dashboard_names_what_is_exported(everything):
    assert NAMED
    assert set(NAMED) - everything == set()


def test_the_dashboard_chooses_by_labels_that_exist(everything):
    board = json.loads(DASHBOARD.read_text("utf-8"))
    assert [each["name"] for each in board["templating"]["list"]] == [
        "datasource",
        "instance",
        "gpu",
    ]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
