"""A service of mostly short requests: /slow takes 200 ms, everything else 10 ms. A request blocks its worker, as a
database query would."""

import os
import time


def application(environ, start_response):
    time.sleep(0.2 if environ["PATH_INFO"] == "/slow" else 0.01)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"%d\n" % os.getpid()]
