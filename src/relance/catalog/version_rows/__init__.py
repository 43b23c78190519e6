"""Managed table versions: one row of the manifest for each, and how rows and manifest files agree.

A version begins as a row that leads to a staged manifest: of all who want that version, one gets the
row. The manifest is then copied to its final name, create-only, and the row leads there. Nobody is told
of a version before its final file is there. So that file also decides against writers that do not ask
the catalog: who finds the name taken has lost, and the row follows the file. A version goes the other
way: its row says `deleting`, its file is deleted, its row is removed. design/0005 tells why.
"""
