"""Recorded client histories of several sites, and the checker that judges them (docs/proof.md).

record      what clients did, when, and what they were answered: a file of JSON lines
register    all that one flag, mail or folder may be, by an OR-Set of several sites
checker     a history's complaints
clients     IMAP clients that act at random and record it
rounds      one history under faults: sites, clients, faults, rest, verdict
"""
