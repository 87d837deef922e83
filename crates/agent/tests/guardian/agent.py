"""An agent process that schedules nothing and says what a real one says. GUARDIAN_TEST_AGENT says how it fails."""
import json, os, sys, time

fault = os.environ.get("GUARDIAN_TEST_AGENT", "")
log = os.environ["GUARDIAN_TEST_LOG"]


def note(text):
    with open(log, "a") as file:
        file.write(text + "\n")


def say(text):
    print(text, flush=True)


assignment = sys.stdin.readline()
if fault == "refuses":
    say('{"say":"failed","text":"no such machine"}')
    sys.exit(1)
if fault == "dies-early":
    sys.exit(3)
if fault == "babbles":
    say("Hello")
if "quantum=3ms" in assignment or fault == "dies-on-two" and len(json.loads(assignment)["cpus"]) == 2:
    sys.exit(7)
say('{"say":"ready"}')
while True:
    order = sys.stdin.readline()
    if not order:
        note("guardian gone")
        sys.exit(0)
    if order == '"attach"\n':
        if "quantum=4ms" in assignment or fault == "fails-on-two" and len(json.loads(assignment)["cpus"]) == 2:
            say('{"say":"failed","text":"attaching is refused"}')
            continue
        note("attached")
        say('{"say":"attached"}')
    elif order == '"leave"\n':
        note("left")
        say('{"say":"left"}')
        time.sleep(1000)
