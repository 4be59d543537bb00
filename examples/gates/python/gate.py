"""A gate in Python: it parses fencing tokens and admits them in SQLite."""

import re
import urllib.parse

SCHEMA = """CREATE TABLE IF NOT EXISTS "etcdclaims_fences" (
  claim_key TEXT COLLATE BINARY NOT NULL PRIMARY KEY, fence INTEGER NOT NULL) WITHOUT ROWID"""
RAISE = """INSERT INTO "etcdclaims_fences" AS mark (claim_key, fence) VALUES (?, ?)
  ON CONFLICT (claim_key) DO UPDATE SET fence = MAX(mark.fence, excluded.fence) RETURNING fence"""

# A bare item of RFC 9651: Decimal, Integer, String, Display String, Token, Byte
# Sequence, Boolean or Date.
BARE = (r'-?[0-9]{1,12}\.[0-9]{1,3}|-?[0-9]{1,15}|"(?:[ !#-\[\]-~]|\\["\\])*"|%"(?:[ !#$&-~]|%[0-9a-f]{2})*"'
        r"|[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*|:[A-Za-z0-9+/]*={0,2}:|\?[01]|@-?[0-9]{1,15}")
PARAMETER = r'; *([a-z*][a-z0-9_.*-]*)(?:=(%s))?' % BARE
ITEM = re.compile(r' *(%s)((?:%s)*) *' % (BARE, PARAMETER.replace('([a-z', '(?:[a-z').replace('=(', '=(?:')))


class Refused(Exception):
    """The reason is a row of docs/gates.md; newest is the greatest fence admitted."""

    def __init__(self, reason, newest=None):
        super().__init__(reason)
        self.reason, self.newest = reason, newest


def parse(header):
    """Returns key and fence of the value of a Fencing-Token header, None if there is no header."""
    if header is None:
        raise Refused('MISSING_FENCE')
    item = ITEM.fullmatch(header) if len(header) <= 4096 else None
    try:
        fence, parameters = item.group(1), re.findall(PARAMETER, item.group(2))
        decoded = {name: decode(value) for name, value in parameters}  # the last of several counts
        key = decoded['key'].encode()
        if re.fullmatch(r'"[1-9][0-9]{15,18}"', fence):  # more digits than an Integer has
            fence = fence[1:-1]
        if 0 < int(fence) < 2**63 and 0 < len(key) <= 1024 and not re.search(r'[\x00-\x1f\x7f-\x9f]', key.decode()):
            return key.decode(), int(fence)
    except (AttributeError, KeyError, ValueError):
        pass
    raise Refused('MALFORMED_FENCE')


def decode(value):
    """Returns the text of a String or a Display String, None for any other bare item."""
    if value.startswith('"'):
        return re.sub(r'\\(.)', r'\1', value[1:-1])
    return urllib.parse.unquote(value[2:-1], errors='strict') if value.startswith('%') else None


def admit(connection, key, fence):
    """Admits a token in the open transaction of the write that it guards, or raises Refused: then roll back."""
    (newest,) = connection.execute(RAISE, (key, fence)).fetchone()
    if newest > fence:
        raise Refused('STALE_FENCE', newest)
