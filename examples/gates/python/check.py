"""Compares gate.py with the vectors. It prints what differs, and ends with status 1 if anything does."""

import json
import pathlib
import sqlite3
import sys

from gate import RAISE, SCHEMA, Refused, admit, parse

vectors = pathlib.Path(__file__).parent.parent / 'vectors'
checked = wrong = 0


def expect(case, want, got):
    global checked, wrong
    checked += 1
    if want != got:
        wrong += 1
        print(f'{case}: want {want}, got {got}')


def outcome(call):
    try:
        return call()
    except Refused as refused:
        return {'reason': refused.reason} | ({'newest': str(refused.newest)} if refused.newest else {})


def token(header):
    key, fence = parse(header)
    return {'key': key, 'fence': str(fence)}


for vector in json.loads((vectors / 'tokens.json').read_text()):
    expect(repr(vector['header']), vector['want'], outcome(lambda: token(vector['header'])))

connection = sqlite3.connect(':memory:', isolation_level=None)
connection.execute(SCHEMA)


def write(header):
    key, fence = parse(header)
    connection.execute('BEGIN IMMEDIATE')
    try:
        admit(connection, key, fence)
        # The write that the token guards belongs here.
        connection.execute('COMMIT')
    except BaseException:
        connection.execute('ROLLBACK')
        raise
    return {}


for i, vector in enumerate(json.loads((vectors / 'verdicts.json').read_text())):
    expect(f'write {i}, {vector["header"]}', vector['want'], outcome(lambda: write(vector['header'])))

# The statements are those of every other gate on this database, but for the
# check that its text is UTF-8, which it is by default.
sqlite = next(d for d in json.loads((vectors / 'sql.json').read_text()) if d['dialect'] == 'SQLite')
expect('schema', sqlite['schema'], [' '.join(SCHEMA.split()).replace('( ', '(')])
expect('admit', sqlite['raise'].removesuffix(", length(CAST('a' AS BLOB))"), ' '.join(RAISE.split()))

print(f'{checked} checked, {wrong} wrong')
sys.exit(wrong > 0)
