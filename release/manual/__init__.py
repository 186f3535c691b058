"""The manual of the command lines, made of the very definitions that ``--help`` is made of.

A program is read into one model (``programs``), and written from there as manual pages, as shell completions and as
part of ``docs/cli.md``.
"""
