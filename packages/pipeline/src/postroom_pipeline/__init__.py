"""The fleet job of Postroom: from files of snapshots to tables and reports, with Spark.

Packages, each importing only those below it::

    cli       the commands
    jobs      runs over a warehouse: ingest, follow, compact, report
    pages     reports for people: HTML, CSV, JSON
    reports   gold tables: one module for each report, from data frames to a data frame
    silver    tables of what devices reported, each fact once
    bronze    files, lines, and which snapshots are complete
    spark     session, storage, warehouse, log of runs
    schema    tables and columns as data

Beside them: ``local`` (bundle and validate, without Spark), ``doctor``, ``package``, ``files`` and ``errors``.
"""
