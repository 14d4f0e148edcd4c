"""Servers whose service times are known, and what queueing theory says of them."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ragauge.measure.protocols.arrivals import Clock, TimedRequest
from served_site import Quiet, running


class Simulated(Clock):
    """A clock that stands still while nobody waits or works."""

    def __init__(self):
        self.at = 100.0

    def now(self):
        return self.at

    def wait_until(self, moment):
        self.at = moment


class Workers:
    """A stepping server of `workers` that take the next service time for each request, in order of
    arrival, on a simulated clock.

    The first token is there at `first` of the service time.
    """

    def __init__(self, clock, services, workers=1, first=0.1):
        self.clock, self.services = clock, iter(services)
        self.free = [0.0] * workers
        self.first = first
        self.pending = []

    @property
    def busy(self):
        return bool(self.pending)

    def admit(self, request):
        start = max(request.arrival_s, self.free[0])
        seconds = next(self.services)
        self.free = sorted([start + seconds, *self.free[1:]])
        first = start + self.first * seconds
        self.pending.append(TimedRequest(request, start, first, start + seconds, 10))
        self.pending.sort(key=lambda timed: timed.end_s)

    def step(self, until):
        if self.pending[0].end_s > until:
            self.clock.at = until
            return []
        self.clock.at = max(self.clock.at, self.pending[0].end_s)
        return [self.pending.pop(0)]


def wait_of_m_d_1(rate, service):
    """Mean seconds in the queue (Pollaczek and Khinchine)."""
    busy = rate * service
    return busy * service / (2 * (1 - busy))


def waits(arrivals, services, workers):
    """Seconds in the queue of each request of workers that serve in order (Kiefer and Wolfowitz)."""
    free = [0.0] * workers
    found = []
    for arrival, service in zip(arrivals, services, strict=True):
        start = max(arrival, free[0])
        free = sorted([start + service, *free[1:]])
        found.append(start - arrival)
    return found


@contextmanager
def simulated_server(service_s, workers=1):
    """The URL of a chat endpoint with workers that take `service_s` for a request, first tokens
    included; the others come with it.

    Its schedule is computed from the moments of arrival, so that late wake-ups do not add up.
    """
    free = [0.0] * workers
    turn = threading.Lock()
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    choices = [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}]
    events = [{"choices": choices, "model": "m"}] * 2
    events += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "model": "m"}]
    events += [{"choices": [], "usage": usage, "model": "m"}]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(404)

        def do_POST(self):
            arrival = time.perf_counter()
            self.rfile.read(int(self.headers["Content-Length"]))
            with turn:
                free.sort()
                free[0] = end = max(arrival, free[0]) + service_s
            time.sleep(max(0.0, end - time.perf_counter()))
            self.reply(body.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with running(server):
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
