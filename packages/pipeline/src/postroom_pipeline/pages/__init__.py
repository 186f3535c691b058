"""What people read of the reports: pages for a browser, and the tables as CSV and JSON.

Nothing here computes a report: tables of ``reports`` are read, cut to what a page holds while they are still in Spark,
and told in words. ``findings`` has what is wrong, ``sections`` what stands below it; ``charts`` are drawn by Vega-Lite.
"""
