/* What FreeBSD's manual and kernel specify beyond the flags: closed queues, ends, the filters' own flags,
 * repeated adds. */
#include "test.h"
#include <netinet/in.h>
#include <sys/stat.h>

static void tcp(int fd[2])
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&at, &size) == 0);
	fd[1] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(fd[1], (struct sockaddr *)&at, sizeof at) == 0);
	fd[0] = accept(listener, NULL, NULL);
	CHECK(fd[0] >= 0 && close(listener) == 0);
}

static FILE *file_of(const char *text)
{
	FILE *file = tmpfile();

	CHECK(file && fputs(text, file) >= 0 && fflush(file) == 0 && lseek(fileno(file), 0, SEEK_SET) == 0);
	return file;
}

/* A closed queue frees its number for any other file at once. */
static void closed_number(void)
{
	int kq = kqueue(), fd[2];

	for (int i = 0; i < 100; i++) {
		int closed = kqueue();
		CHECK(close(closed) == 0);
		pair(fd);
		CHECK(fd[0] == closed && add(kq, fd[0], EVFILT_READ, 0) == 0);
		put(fd[1], "a");
		CHECK(only(kq).ident == (uintptr_t)closed && close(fd[0]) == 0 && close(fd[1]) == 0);
	}
	int replaced = kqueue();
	pair(fd);
	CHECK(dup2(fd[0], replaced) == replaced && add(kq, replaced, EVFILT_READ, 0) == 0);
	put(fd[1], "a");
	CHECK(only(kq).ident == (uintptr_t)replaced);
	/* An open queue cannot be waited for in another. */
	CHECK(add(kq, kqueue(), EVFILT_READ, 0) == EINVAL);
}

static pid_t child(int *go)
{
	int fd[2];
	char c;

	CHECK(pipe(fd) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(fd[1]);
		_exit(read(fd[0], &c, 1) == 0 ? 3 : 4);
	}
	close(fd[0]);
	*go = fd[1];
	return pid;
}

/* Without flags nothing is reported of a process; the registration ends with it. */
static void process_without_flags(void)
{
	int kq = kqueue(), go;
	pid_t pid = child(&go);
	siginfo_t info;

	CHECK(change(kq, pid, EVFILT_PROC, EV_ADD, 0, 0, NULL) == 0 && nothing(kq));
	CHECK(close(go) == 0 && waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0 && nothing(kq));
	CHECK(change(kq, pid, EVFILT_PROC, EV_DELETE, 0, 0, NULL) == ENOENT && waitpid(pid, NULL, 0) == pid);
	/* Flags can be added and removed later. */
	pid = child(&go);
	CHECK(change(kq, pid, EVFILT_PROC, EV_ADD, 0, 0, NULL) == 0);
	CHECK(change(kq, pid, EVFILT_PROC, EV_ADD, NOTE_EXIT, 0, NULL) == 0 && nothing(kq) && close(go) == 0);
	struct kevent kev = only(kq);
	CHECK(kev.fflags == NOTE_EXIT && kev.flags & EV_EOF && WEXITSTATUS(kev.data) == 3 && waitpid(pid, NULL, 0) == pid);
	pid = child(&go);
	CHECK(change(kq, pid, EVFILT_PROC, EV_ADD, NOTE_EXIT, 0, NULL) == 0);
	CHECK(change(kq, pid, EVFILT_PROC, EV_ADD, 0, 0, NULL) == 0);
	CHECK(close(go) == 0 && waitpid(pid, NULL, 0) == pid && nothing(kq));
	CHECK(change(kq, pid, EVFILT_PROC, EV_ADD, 0, 0, NULL) == ESRCH);
}

/* What Linux does not report is refused by name. */
static void unserved_flags(void)
{
	int kq = kqueue(), fd[2];
	static const unsigned forks[] = {NOTE_FORK, NOTE_EXEC, NOTE_TRACK, NOTE_EXIT | NOTE_FORK | NOTE_EXEC | NOTE_TRACK};

	for (unsigned i = 0; i < sizeof forks / sizeof *forks; i++) {
		CHECK(change(kq, getpid(), EVFILT_PROC, EV_ADD, forks[i], 0, NULL) == ENOTSUP);
		CHECK(strstr(kqueue_error(), "NOTE_EXIT"));
	}
	CHECK(change(kq, getpid(), EVFILT_PROC, EV_ADD, NOTE_CHILD, 0, NULL) == EINVAL);
	pair(fd);
	CHECK(change(kq, fd[0], EVFILT_WRITE, EV_ADD, NOTE_LOWAT, 1, NULL) == ENOTSUP &&
	      strstr(kqueue_error(), "NOTE_LOWAT"));
}

/* Units are not part of the reported flags, and a moment that has passed stays passed. */
static void timers(void)
{
	static const unsigned units[] = {NOTE_SECONDS, NOTE_MSECONDS, NOTE_USECONDS, NOTE_NSECONDS};
	int kq = kqueue();
	struct kevent kev;

	for (unsigned i = 0; i < 4; i++) {
		CHECK(change(kq, 1, EVFILT_TIMER, EV_ADD | EV_ONESHOT, units[i], 0, NULL) == 0);
		kev = only(kq);
		CHECK(kev.fflags == 0 && kev.flags == (EV_CLEAR | EV_ONESHOT));
	}
	CHECK(change(kq, 1, EVFILT_TIMER, EV_ADD, NOTE_ABSTIME | NOTE_SECONDS, 5, NULL) == 0);
	for (int i = 0; i < 3; i++) {
		kev = only(kq);
		CHECK(kev.fflags == 0 && kev.flags == 0 && kev.data == 1);
	}
	CHECK(change(kq, 1, EVFILT_TIMER, EV_DISABLE, 0, 0, NULL) == 0 && nothing(kq));
	CHECK(change(kq, 1, EVFILT_TIMER, EV_ENABLE, 0, 0, NULL) == 0 && only(kq).data == 1);
	CHECK(change(kq, 1, EVFILT_TIMER, EV_DELETE, 0, 0, NULL) == 0 && nothing(kq));
	CHECK(change(kq, 1, EVFILT_TIMER, EV_ADD | EV_CLEAR, NOTE_ABSTIME | NOTE_SECONDS, 5, NULL) == 0);
	CHECK(only(kq).flags == EV_CLEAR && nothing(kq));
	CHECK(change(kq, 1, EVFILT_TIMER, EV_DELETE, 0, 0, NULL) == 0);
}

/* The end is reported together with the bytes before it. */
static void end_with_bytes(void)
{
	void (*const make[])(int[2]) = {tcp, pair};
	int kq = kqueue(), fd[2];
	struct kevent kev;

	for (int i = 0; i < 2; i++) {
		make[i](fd);
		CHECK(add(kq, fd[0], EVFILT_READ, 0) == 0);
		put(fd[1], "abc");
		CHECK(only(kq).flags == 0 && shutdown(fd[1], SHUT_WR) == 0);
		/* On TCP it takes a moment to arrive. */
		do
			kev = only(kq);
		while (!(kev.flags & EV_EOF));
		CHECK(kev.data == 3);
		take(fd[0], 3);
		kev = only(kq);
		CHECK(kev.data == 0 && kev.flags == EV_EOF && close(fd[0]) == 0 && close(fd[1]) == 0);
	}
	CHECK(pipe(fd) == 0 && add(kq, fd[0], EVFILT_READ, 0) == 0);
	put(fd[1], "abc");
	CHECK(close(fd[1]) == 0);
	kev = only(kq);
	CHECK(kev.data == 3 && kev.flags == EV_EOF);
}

/* udata, fflags and data are replaced; flags stay for life. */
static void added_again(void)
{
	int kq = kqueue(), fd[2], a, b;
	struct kevent kev, out;

	pair(fd);
	put(fd[1], "a");
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ADD, 0, 0, &a) == 0);
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ADD | EV_CLEAR | EV_ONESHOT | EV_DISPATCH, 0, 0, &b) == 0);
	for (int i = 0; i < 3; i++) {
		kev = only(kq);
		CHECK(kev.flags == 0 && kev.udata == &b);
	}
	CHECK(change(kq, fd[1], EVFILT_WRITE, EV_ADD | EV_DISPATCH, 0, 0, NULL) == 0);
	CHECK(change(kq, fd[0], EVFILT_READ, EV_DELETE, 0, 0, NULL) == 0);
	CHECK(change(kq, fd[1], EVFILT_WRITE, EV_ADD, 0, 0, NULL) == 0 && only(kq).flags == EV_DISPATCH && nothing(kq));
	/* Each event has the flag, whichever change asked for the receipt. */
	EV_SET(&kev, 7, EVFILT_USER, EV_ADD | EV_RECEIPT | EV_CLEAR, 0, 0, NULL);
	CHECK(kevent(kq, &kev, 1, &out, 1, NULL) == 1 && out.flags == EV_ERROR && out.data == 0);
	CHECK(change(kq, 7, EVFILT_USER, EV_ADD, NOTE_TRIGGER, 0, NULL) == 0 && only(kq).flags == (EV_RECEIPT | EV_CLEAR));
	CHECK(nothing(kq));
	/* A one-shot timer stays one-shot, however it is set again. */
	CHECK(change(kq, 1, EVFILT_TIMER, EV_ADD | EV_ONESHOT, NOTE_SECONDS, 86400, NULL) == 0);
	CHECK(change(kq, 1, EVFILT_TIMER, EV_ADD, NOTE_NSECONDS, 1, NULL) == 0 && only(kq).flags & EV_ONESHOT);
	CHECK(change(kq, 1, EVFILT_TIMER, EV_DELETE, 0, 0, NULL) == ENOENT);
}

/* EVFILT_VNODE is for files in a file system. */
static void files_only(void)
{
	char folder[] = "/tmp/heddle-kqueue-XXXXXX", name[64];
	int kq = kqueue(), fd[2], event = eventfd(0, 0);

	pair(fd);
	CHECK(change(kq, fd[0], EVFILT_VNODE, EV_ADD | EV_CLEAR, NOTE_WRITE, 0, NULL) == EINVAL);
	CHECK(change(kq, event, EVFILT_VNODE, EV_ADD | EV_CLEAR, NOTE_WRITE, 0, NULL) == EINVAL);
	CHECK(pipe(fd) == 0 && change(kq, fd[0], EVFILT_VNODE, EV_ADD | EV_CLEAR, NOTE_WRITE, 0, NULL) == EINVAL);
	CHECK(mkdtemp(folder) && snprintf(name, sizeof name, "%s/fifo", folder) > 0 && mkfifo(name, 0600) == 0);
	int fifo = open(name, O_RDWR);
	CHECK(fifo >= 0 && change(kq, fifo, EVFILT_VNODE, EV_ADD | EV_CLEAR, NOTE_DELETE, 0, NULL) == 0);
	CHECK(unlink(name) == 0 && only(kq).fflags & NOTE_DELETE && rmdir(folder) == 0);
}

/* Without EV_CLEAR, a change of a file is reported until the registration ends; a write that extends it is
 * NOTE_EXTEND, too. */
static void changes_stay(void)
{
	int kq = kqueue(), fd = fileno(file_of("abc"));

	CHECK(change(kq, fd, EVFILT_VNODE, EV_ADD, NOTE_WRITE | NOTE_ATTRIB, 0, NULL) == 0 && nothing(kq));
	CHECK(lseek(fd, 0, SEEK_END) == 3);
	put(fd, "d");
	CHECK(only(kq).fflags == (NOTE_WRITE | NOTE_EXTEND) && only(kq).fflags == (NOTE_WRITE | NOTE_EXTEND));
	CHECK(fchmod(fd, 0400) == 0);
	CHECK(only(kq).fflags & NOTE_WRITE && only(kq).fflags & NOTE_ATTRIB);
	CHECK(change(kq, fd, EVFILT_VNODE, EV_DELETE, 0, 0, NULL) == 0 && nothing(kq));
	/* No flags: nothing is reported. */
	CHECK(change(kq, fd, EVFILT_VNODE, EV_ADD, 0, 0, NULL) == 0 && lseek(fd, 0, SEEK_SET) == 0);
	put(fd, "e");
	CHECK(nothing(kq));
}

static void low_water(void (*make)(int[2]))
{
	int kq = kqueue(), fd[2];
	struct kevent kev;

	make(fd);
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ADD, NOTE_LOWAT, 4, NULL) == 0);
	put(fd[1], "abc");
	CHECK(nothing(kq));
	put(fd[1], "d");
	for (int i = 0; i < 3; i++)
		CHECK(only(kq).data == 4);
	take(fd[0], 1);
	CHECK(nothing(kq));
	/* Fewer bytes are enough now; disabled, it waits. */
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ADD | EV_DISABLE, NOTE_LOWAT, 2, NULL) == 0 && nothing(kq));
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ENABLE, 0, 0, NULL) == 0 && only(kq).data == 3);
	take(fd[0], 2);
	CHECK(nothing(kq) && shutdown(fd[1], SHUT_WR) == 0);
	/* The end is reported whatever is left. */
	kev = only(kq);
	CHECK(kev.data == 1 && kev.flags == EV_EOF);
	CHECK(change(kq, fd[0], EVFILT_READ, EV_DELETE, 0, 0, NULL) == 0);
	make(fd);
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ADD | EV_DISPATCH, NOTE_LOWAT, 2, NULL) == 0);
	put(fd[1], "a");
	CHECK(nothing(kq));
	put(fd[1], "b");
	CHECK(only(kq).data == 2 && nothing(kq));
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ENABLE, 0, 0, NULL) == 0 && only(kq).data == 2 && nothing(kq));
	/* Without the flag one byte is enough. */
	take(fd[0], 1);
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ADD, 0, 0, NULL) == 0 && only(kq).data == 1);
}

static void low_water_of_sockets(void)
{
	low_water(pair);
	low_water(tcp);
}

/* A file is ready before its end, and again when it has grown. */
static void end_of_a_file(void)
{
	FILE *file = file_of("abc");
	int kq = kqueue(), fd = fileno(file);

	CHECK(add(kq, fd, EVFILT_READ, 0) == 0 && only(kq).data == 3 && only(kq).data == 3);
	CHECK(lseek(fd, 0, SEEK_END) == 3 && nothing(kq) && nothing(kq));
	CHECK(pwrite(fd, "de", 2, 3) == 2 && only(kq).data == 2);
	take(fd, 2);
	CHECK(nothing(kq));
	/* Both filters at once; a file can always be written to. */
	CHECK(add(kq, fd, EVFILT_WRITE, EV_ONESHOT) == 0 && only(kq).filter == EVFILT_WRITE && nothing(kq));
	/* As requested for poll(2): always ready. */
	CHECK(change(kq, fd, EVFILT_READ, EV_ADD, NOTE_FILE_POLL, 0, NULL) == 0 && only(kq).data == 0 &&
	      only(kq).data == 0);
	CHECK(change(kq, fd, EVFILT_READ, EV_DELETE, 0, 0, NULL) == 0 && nothing(kq));
}

/* How many connections wait; a listening socket is never writable. */
static void listeners(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof at;
	int kq = kqueue(), listener = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 8) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&at, &size) == 0);
	CHECK(add(kq, listener, EVFILT_WRITE, 0) == 0 && add(kq, listener, EVFILT_READ, 0) == 0 && nothing(kq));
	for (int i = 0; i < 3; i++)
		CHECK(connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&at, sizeof at) == 0);
	struct kevent kev;
	do
		kev = only(kq);
	while (kev.data < 3);
	CHECK(kev.filter == EVFILT_READ && kev.data == 3);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{"closed_number", closed_number}, {"process_without_flags", process_without_flags},
		{"unserved_flags", unserved_flags},
		{"timers", timers}, {"end_with_bytes", end_with_bytes}, {"added_again", added_again},
		{"files_only", files_only},
		{"changes_stay", changes_stay}, {"low_water_of_sockets", low_water_of_sockets},
		{"end_of_a_file", end_of_a_file},
		{"listeners", listeners}, {NULL, NULL},
	};
	return run_test(tests, argc, argv);
}
