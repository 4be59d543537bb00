"""A client of claimctl serve, with the standard library alone.

    claims = Claims('/run/user/1000/claimctl.sock')
    with claims.acquire('nightly', wait=60) as claim:
        claim.check()                        # right before each effect
        claim.txn(put={'/report': 'done'})   # or send claim.token along

A claim ends when this process dies, at claim.deadline without another heartbeat, and
when it was lost. Heartbeats are sent by a thread, each third of the ttl.
"""

import base64
import http.client
import json
import socket
import threading
import time
import urllib.parse
import uuid


def now():
    """Returns seconds of a clock that nobody sets, and that runs on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, 'CLOCK_BOOTTIME') else time.monotonic()


class Problem(Exception):
    """A request was refused, or its outcome is unknown. GET /v1/openapi.json explains the codes."""

    def __init__(self, status, document):
        self.status, self.code = status, document.get('type', '').rpartition(':')[2]
        super().__init__(f'{status} {self.code}: {document.get("detail", "")}')


class Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__('localhost', timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Claims:
    def __init__(self, path):
        self.path = path

    def call(self, method, path, body=None, timeout=15, token=None):
        """Returns the answer. A request whose answer was lost raises OSError or HTTPException: repeat it."""
        connection = Connection(self.path, timeout)
        try:
            headers = {'Fencing-Token': token} if token else {}
            connection.request(method, '/v1/' + path, body and json.dumps(body), headers)
            response = connection.getresponse()
            answer = json.loads(response.read() or '{}')
        finally:
            connection.close()
        if response.status >= 400:
            raise Problem(response.status, answer)
        return answer

    def acquire(self, key, ttl=15, wait=0, **terms):
        """Returns a Claim, or raises the Problem held. It waits in line for that many seconds."""
        body = {'key': key, 'id': str(uuid.uuid4()), 'ttl_ms': int(ttl * 1000), 'wait_ms': int(wait * 1000)} | terms
        for repeats in (2, 1, 0):  # with the same id: the claim is acquired once
            sent = now()
            try:
                answer = self.call('POST', 'claims', body, timeout=wait + 15)
                return Claim(self, 'claims/' + answer['id'], ttl, sent, answer)
            except (OSError, http.client.HTTPException):
                if not repeats:
                    raise
                time.sleep(0.2)

    def enqueue(self, queue, payload, **item):
        """Enqueues a JSON value. Give it an id, with which it can be enqueued again after a lost answer."""
        return self.call('POST', f'queues/{quote(queue)}/items', {'payload': payload} | item)['added']

    def items(self, queue, max=1, ttl=15, wait=0):
        """Returns a list of Items, which is empty if none is visible in time."""
        sent, path = now(), f'queues/{quote(queue)}/'
        body = {'max': max, 'ttl_ms': int(ttl * 1000), 'wait_ms': int(wait * 1000)}
        answer = self.call('POST', path + 'claim', body, timeout=wait + 15)
        return [Item(self, f'{path}deliveries/{d["id"]}', ttl, sent, d) for d in answer['deliveries']]


def quote(name):
    return urllib.parse.quote(name, safe='')


class Lease:
    """What this process holds until its deadline, which heartbeats move."""

    def __init__(self, claims, path, ttl, sent, answer):
        self.claims, self.path, self.ttl = claims, path, ttl
        self.token, self.fence, self.deadline = answer['token'], int(answer['fence']), 0
        self.over = threading.Event()
        self.extend(sent, answer)
        threading.Thread(target=self.beat, daemon=True).start()

    def extend(self, sent, answer):
        """Counts from before the request was sent, so the deadline is not later than that of the server."""
        self.deadline = max(self.deadline, sent + (answer['waited_ms'] + answer['remaining_ms']) / 1000)

    def beat(self):
        while not self.over.wait(self.ttl / 3):
            sent = now()
            try:
                self.extend(sent, self.call('POST', '/heartbeat', timeout=self.ttl / 3))
            except (OSError, http.client.HTTPException):
                pass  # until the deadline
            except Problem as problem:
                if problem.code in ('lost', 'stale', 'not-found'):
                    self.over.set()

    def check(self):
        """Raises TimeoutError unless the lease is held. Call it right before each effect; it sends nothing."""
        if self.over.is_set() or now() >= self.deadline:
            raise TimeoutError(f'the lease with the token {self.token} is over')

    def call(self, method, path, body=None, **options):
        """Sends the token along: the answer is for this lease, or the Problem is stale."""
        return self.claims.call(method, self.path + path, body, token=self.token, **options)

    def end(self, method, path, body=None):
        self.over.set()
        return self.call(method, path, body)


class Claim(Lease):
    def txn(self, put=None, delete=()):
        """Writes to etcd if the claim is held at that moment. Otherwise the Problem is lost, with status 412."""
        puts = [{'key': key, 'value': value} for key, value in (put or {}).items()]
        return self.call('POST', '/txn', {'put': puts, 'delete': list(delete)})['revision']

    def release(self):
        self.end('DELETE', '')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Item(Lease):
    def __init__(self, claims, path, ttl, sent, answer):
        self.id, self.attempt = answer['item'], answer['attempt']
        self.data, self.payload = base64.b64decode(answer['payload_base64']), answer.get('payload')
        super().__init__(claims, path, ttl, sent, answer)

    def complete(self):
        self.end('POST', '/complete', {})

    def fail(self, error, **terms):
        return self.end('POST', '/fail', {'error': error} | terms)
