"""The tasks of a process or a core file, for gdb 11 or later: gdb -x scripts/gdb/heddle.py -p PID, or ... PROGRAM CORE.

heddle tasks              lists them: number, thread pointer, name, and what each does
heddle bt TASK|all [...]  prints the frames of a task, with options of `backtrace`
heddle apply TASK|all CMD runs a command of gdb in the task's innermost frame

TASK is a number of the list, or a thread pointer (what `pthread_self()` returns). The frames of a task that does not
run are not numbered from 0: gdb takes them for callers of a thread's innermost frame, which is left out.

It works for programs under `heddle run`, for those linked with the archive and for those that use the runtime
themselves. They need no debugging information: the runtime says where everything lies
(crates/runtime/src/task/debug.rs, crates/posix/src/debug.rs).
"""

import re
import struct

import gdb
from gdb.unwinder import Unwinder, register_unwinder

VERSION = 1
# crates/runtime/src/task/mod.rs; 0: absent.
QUEUED, RUNNING = 1, 2
NO_ID = 0xFFFFFFFF
# crates/sync/src/end.rs
DONE, ABANDONED = 2**64 - 1, 2**64 - 4
# What a switched-out task runs next (crates/arch/src/switch.rs): pop rbx; pop rbp.
RESUMES = b"\x5b\x5d"
# What a switch leaves on the stack.
SWITCHED = 32
# Of eight bytes, whatever the program's language calls it.
WORD = gdb.Value(0).type


def memory(address, size):
    return gdb.selected_inferior().read_memory(address, size).tobytes()


def number(address, size=8):
    return int.from_bytes(memory(address, size), "little")


def address_of(symbol):
    language = gdb.parameter("language")
    gdb.execute("set language c", to_string=True)
    try:
        return int(gdb.parse_and_eval("(unsigned long) &" + symbol))
    except gdb.error:
        return None
    finally:
        gdb.execute("set language " + language, to_string=True)


class Tables:
    """What the program says of its tasks."""

    def __init__(self):
        if gdb.selected_thread() is None:
            raise gdb.GdbError("The program does not run, and there is no core file.")
        runtime = address_of("heddle_tasks")
        if runtime is None:
            raise gdb.GdbError("There is no Heddle runtime here that gdb can see. Was the program stripped?")
        table = struct.unpack("<IIQ8I", memory(runtime, 48))
        if table[0] != VERSION:
            raise gdb.GdbError("The program has tables of version %d, this script reads %d." % (table[0], VERSION))
        (_, self.next, self.first, self.sp, self.fs, self.run, self.end, self.cpu, self.id, self.name) = table[:10]
        self.extension = table[10]
        self.waits, self.thread_name, self.tid = {}, None, None
        posix = address_of("heddle_threads")
        if posix is not None and number(posix, 4) == VERSION:
            self.read_posix(posix)

    def read_posix(self, at):
        (_, self.thread_name, self.tid, buckets, size, head, after, key, who, _, lot) = struct.unpack(
            "<10IQ", memory(at, 48)
        )
        lists = memory(lot, buckets * size)
        for bucket in range(buckets):
            node = int.from_bytes(lists[bucket * size + head :][:8], "little")
            # A process that was stopped in the middle of a change may have a circle.
            for _ in range(1 << 16):
                if node == 0:
                    break
                kind, task = struct.unpack("<QQ", memory(node + who, 16))
                if kind == 0:
                    self.waits[task] = number(node + key)
                node = number(node + after)

    def tasks(self):
        """All tasks that have not ended, by number."""
        threads = running_threads()
        found, at = [], self.first
        while at != 0:
            task = Task(self, at, threads)
            if task.exists:
                found.append(task)
            at = number(at + self.next)
        return sorted(found, key=lambda task: task.number)


def register(frame, name):
    return int(frame.read_register(name)) & (2**64 - 1)


def running_threads():
    """The threads of the process by their thread pointer."""
    before, threads = gdb.selected_thread(), {}
    try:
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            try:
                threads[register(gdb.newest_frame(), "fs_base")] = thread
            except (gdb.error, ValueError):
                continue
    finally:
        if before is not None:
            before.switch()
    return threads


class Task:
    def __init__(self, tables, at, threads):
        ident = number(at + tables.id, 4)
        end = number(at + tables.end)
        self.exists = ident != NO_ID and end != DONE
        if not self.exists:
            return
        self.fs = number(at + tables.fs)
        self.run = number(at + tables.run, 1)
        self.cpu = number(at + tables.cpu, 4)
        self.sp = number(at + tables.sp)
        self.thread = threads.get(self.fs)
        self.waits_for = tables.waits.get(at)
        self.abandoned = end == ABANDONED
        self.number, self.name = ident, self.own_name(at + tables.name)
        record = number(at + tables.extension)
        if record != 0 and tables.tid is not None:
            self.number = number(record + tables.tid, 4) or ident
            name = memory(record + tables.thread_name, 16).split(b"\0")[0]
            self.name = name.decode(errors="replace") or self.name

    @staticmethod
    def own_name(at):
        text, length = number(at), number(at + 8)
        if text == 0 or length > 4096:
            return ""
        return memory(text, length).decode(errors="replace")

    def context(self):
        """Stack pointer, instruction, rbx and rbp after its switch. Raises gdb.error if there is none: the task has not
        run yet, or the core file lacks its stack."""
        try:
            _, pc, rbx, rbp = struct.unpack("<4Q", memory(self.sp, 32))
            resumes = memory(pc, 2) == RESUMES
        except gdb.MemoryError:
            raise gdb.error("Its stack cannot be read.") from None
        if not resumes:
            raise gdb.error("It has not run yet.")
        return (self.sp + SWITCHED, pc + len(RESUMES), rbx, rbp)

    def state(self):
        if self.thread is not None:
            return "running on worker %d (LWP %d)" % (self.cpu, self.thread.ptid[1])
        if self.run == RUNNING:
            return "running on worker %d" % self.cpu
        if self.abandoned:
            return "abandoned: its runtime has ended"
        if self.run == QUEUED:
            return "queued on worker %d" % self.cpu
        if self.waits_for is not None:
            return "waiting for " + place(self.waits_for)
        return "waiting"

    def in_frames(self, action):
        """Calls `action` with the task's frames in place of those of a thread."""
        before, selected = gdb.selected_thread(), selected_level()
        try:
            if self.thread is not None:
                self.thread.switch()
                gdb.newest_frame().select()
                return action(0)
            with UNWINDER.showing(self.context()):
                frame = gdb.newest_frame()
                # One is left out, or more if functions are inlined there.
                while frame is not None and register(frame, "rsp") != self.sp + SWITCHED:
                    frame = frame.older()
                if frame is None:
                    raise gdb.error("Its frames cannot be read.")
                frame.select()
                return action(frame.level())
        finally:
            before.switch()
            select_level(selected)


def place(address):
    """An address, with the symbol there if there is one."""
    text = gdb.execute("info symbol %#x" % address, to_string=True).split(" in section ")[0].strip()
    return "%#x" % address if text.startswith("No symbol") else "%#x <%s>" % (address, text)


def selected_level():
    try:
        return gdb.selected_frame().level()
    except gdb.error:
        return 0


def select_level(level):
    frame = gdb.newest_frame()
    while frame is not None and frame.level() < level:
        frame = frame.older()
    if frame is not None:
        frame.select()


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class TaskUnwinder(Unwinder):
    """Makes a task's frames the callers of the selected thread's innermost one. Works in core files, too, in which
    registers cannot be set."""

    def __init__(self):
        super().__init__("heddle")
        self.values = self.innermost = None

    def showing(self, context):
        frame = gdb.newest_frame()
        self.values, self.innermost = context, (register(frame, "rsp"), register(frame, "rip"))
        gdb.invalidate_cached_frames()
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.values = None
        gdb.invalidate_cached_frames()

    def __call__(self, pending):
        if self.values is None or self.innermost != (register(pending, "rsp"), register(pending, "rip")):
            return None
        sp, pc, rbx, rbp = (gdb.Value(value).cast(WORD) for value in self.values)
        # Below the task's frames: gdb holds callers to be above what they call.
        info = pending.create_unwind_info(FrameId((sp - 64).cast(WORD.pointer()), pc.cast(WORD.pointer())))
        for name, value in (("rsp", sp), ("rip", pc), ("rbx", rbx), ("rbp", rbp)):
            info.add_saved_register(name, value)
        return info


UNWINDER = TaskUnwinder()
register_unwinder(None, UNWINDER, replace=True)


def chosen(text):
    """The tasks that the first word of `text` names, and the rest of it."""
    words = text.split(None, 1)
    if not words:
        raise gdb.GdbError("Name a task by its number or its thread pointer, or all of them by `all`.")
    tasks = Tables().tasks()
    if words[0] != "all":
        try:
            wanted = int(words[0], 0)
        except ValueError:
            raise gdb.GdbError("`%s` is neither a task's number nor `all`." % words[0]) from None
        tasks = [task for task in tasks if wanted in (task.number, task.fs)]
        if not tasks:
            raise gdb.GdbError("There is no task %s; `heddle tasks` lists them." % words[0])
    return tasks, words[1] if len(words) > 1 else ""


def head(task):
    return "Task %d (%#x)%s %s" % (task.number, task.fs, ' "%s"' % task.name if task.name else "", task.state())


def print_frames(task, options):
    def frames(first):
        # A number of frames does not count those that are left out.
        wanted = re.sub(r"(?<!\S)\d+$", lambda number: str(int(number[0]) + first), options)
        text = gdb.execute("backtrace " + wanted, to_string=True)
        if first > 0:
            text = "".join(re.split(r"(?m)^(?=#%d )" % first, text, maxsplit=1)[1:])
        print(text, end="")

    apply(task, frames)


def apply(task, action):
    """Calls `action` in the task's frames; prints why that is not possible."""
    try:
        task.in_frames(action)
    except gdb.error as error:
        print(error)


class Heddle(gdb.Command):
    """Tasks of Heddle's runtime: heddle tasks, heddle bt, heddle apply."""

    def __init__(self):
        super().__init__("heddle", gdb.COMMAND_STACK, prefix=True)

    def invoke(self, text, from_tty):
        raise gdb.GdbError("Use heddle tasks, heddle bt TASK|all, or heddle apply TASK|all COMMAND.")


class Tasks(gdb.Command):
    """Lists the tasks that have not ended: number, thread pointer, name, and what each does."""

    def __init__(self):
        super().__init__("heddle tasks", gdb.COMMAND_STACK)

    def invoke(self, text, from_tty):
        print("%-8s %-16s %-15s %s" % ("Task", "Thread", "Name", "State"))
        for task in Tables().tasks():
            print("%-8d %#-16x %-15s %s" % (task.number, task.fs, task.name, task.state()))


class Backtrace(gdb.Command):
    """Prints the frames of a task, or of all: heddle bt TASK|all [OPTIONS OF backtrace]."""

    def __init__(self):
        super().__init__("heddle bt", gdb.COMMAND_STACK)

    def invoke(self, text, from_tty):
        tasks, options = chosen(text)
        for task in tasks:
            print("\n" + head(task))
            print_frames(task, options)


class Apply(gdb.Command):
    """Runs a command of gdb in the innermost frame of a task, or of all: heddle apply TASK|all COMMAND."""

    def __init__(self):
        super().__init__("heddle apply", gdb.COMMAND_STACK)

    def invoke(self, text, from_tty):
        tasks, command = chosen(text)
        if not command:
            raise gdb.GdbError("Write the command after the task.")
        is_backtrace = re.match(r"(bt|backtrace|where)\b(.*)", command)
        for task in tasks:
            print("\n" + head(task))
            if is_backtrace:
                print_frames(task, is_backtrace.group(2).strip())
            else:
                apply(task, lambda _: gdb.execute(command))


for command in (Heddle, Tasks, Backtrace, Apply):
    command()
