"""The reports for people: pages for a browser, and the tables as CSV and JSON.

Nothing here computes a report. The tables of ``reports`` are read, reduced in Spark to what a page shows, and put into
words. ``findings`` lists the problems, ``sections`` are what comes below them, ``charts`` are drawn by Vega-Lite.
"""
