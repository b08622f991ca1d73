"""Storage: the only place that speaks SQL.

Start at `gpuadvisor.storage.database.open_store`. Nothing is imported here, so that asking for
the folder (`gpuadvisor.storage.home`) does not cost an import of SQLAlchemy.
"""
