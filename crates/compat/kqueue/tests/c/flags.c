/* Flags and errors, from the manual page kqueue(2). */
#include "test.h"

static void level(void)
{
	int kq = kqueue(), fd[2];

	pair(fd);
	CHECK(kq >= 0 && add(kq, fd[0], EVFILT_READ, 0) == 0);
	CHECK(nothing(kq));
	put(fd[1], "abc");
	for (int left = 3; left > 0; left--) {
		struct kevent kev = only(kq);
		CHECK(kev.ident == (uintptr_t)fd[0] && kev.filter == EVFILT_READ && kev.data == left);
		CHECK(!(kev.flags & (EV_EOF | EV_ERROR)));
		take(fd[0], 1);
	}
	CHECK(nothing(kq));
}

static void clear(void)
{
	int kq = kqueue(), fd[2];

	pair(fd);
	CHECK(add(kq, fd[0], EVFILT_READ, EV_CLEAR) == 0);
	put(fd[1], "ab");
	struct kevent kev = only(kq);
	CHECK(kev.data == 2 && kev.flags & EV_CLEAR);
	CHECK(nothing(kq));
	put(fd[1], "c");
	CHECK(only(kq).data == 3);
	CHECK(nothing(kq));
	/* Added again: a condition that holds is reported. */
	CHECK(add(kq, fd[0], EVFILT_READ, EV_CLEAR) == 0);
	CHECK(only(kq).data == 3);
}

/* Room for one event in a call does not limit the next call. */
static void room(void)
{
	int kq = kqueue(), fd[2], other[2];
	struct kevent kev[64];

	pair(fd);
	pair(other);
	CHECK(add(kq, fd[0], EVFILT_READ, 0) == 0 && add(kq, other[0], EVFILT_READ, 0) == 0);
	put(fd[1], "a");
	put(other[1], "a");
	CHECK(kevent(kq, NULL, 0, kev, 1, &HANG) == 1);
	CHECK(kevent(kq, NULL, 0, kev, 64, &HANG) == 2 && kev[0].ident != kev[1].ident);
	CHECK(kevent(kq, NULL, 0, kev, 1, &HANG) == 1);
}

static void oneshot(void)
{
	int kq = kqueue(), fd[2];

	pair(fd);
	CHECK(add(kq, fd[0], EVFILT_READ, EV_ONESHOT) == 0);
	put(fd[1], "a");
	CHECK(only(kq).flags & EV_ONESHOT);
	CHECK(nothing(kq));
	CHECK(change(kq, fd[0], EVFILT_READ, EV_DELETE, 0, 0, NULL) == ENOENT);
	CHECK(add(kq, fd[0], EVFILT_READ, EV_ONESHOT) == 0);
	CHECK(only(kq).data == 1);
}

static void dispatch(void)
{
	int kq = kqueue(), fd[2];

	pair(fd);
	CHECK(add(kq, fd[0], EVFILT_READ, EV_DISPATCH) == 0);
	put(fd[1], "a");
	CHECK(only(kq).data == 1);
	CHECK(nothing(kq));
	put(fd[1], "b");
	CHECK(nothing(kq));
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ENABLE, 0, 0, NULL) == 0);
	CHECK(only(kq).data == 2);
	CHECK(nothing(kq));
	/* A condition that no longer holds is not reported after EV_ENABLE. */
	take(fd[0], 2);
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ENABLE, 0, 0, NULL) == 0);
	CHECK(nothing(kq));
	put(fd[1], "c");
	CHECK(only(kq).data == 1);
}

static void disable(void)
{
	int kq = kqueue(), fd[2];

	pair(fd);
	CHECK(add(kq, fd[0], EVFILT_READ, EV_DISABLE) == 0);
	put(fd[1], "a");
	CHECK(nothing(kq));
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ENABLE, 0, 0, NULL) == 0);
	CHECK(only(kq).data == 1);
	CHECK(change(kq, fd[0], EVFILT_READ, EV_DISABLE, 0, 0, NULL) == 0);
	CHECK(nothing(kq));
	/* Adding enables. */
	CHECK(add(kq, fd[0], EVFILT_READ, 0) == 0);
	CHECK(only(kq).data == 1);
	CHECK(change(kq, fd[0], EVFILT_READ, EV_DELETE, 0, 0, NULL) == 0);
	CHECK(nothing(kq));
}

static void udata(void)
{
	int kq = kqueue(), fd[2], a, b;

	pair(fd);
	put(fd[1], "a");
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ADD, 0, 0, &a) == 0);
	CHECK(only(kq).udata == &a);
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ADD, 0, 0, &b) == 0);
	CHECK(only(kq).udata == &b);
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ENABLE, 0, 0, NULL) == 0);
	CHECK(only(kq).udata == &b);
}

static void receipt(void)
{
	int kq = kqueue(), fd[2];
	struct kevent kev[3], out[3];

	pair(fd);
	put(fd[1], "a");
	EV_SET(&kev[0], fd[0], EVFILT_READ, EV_ADD | EV_RECEIPT, 0, 0, &kq);
	EV_SET(&kev[1], fd[0], EVFILT_WRITE, EV_DELETE, 0, 0, NULL);
	EV_SET(&kev[2], fd[0], EVFILT_WRITE, EV_ADD | EV_RECEIPT | EV_DISABLE, 0, 0, NULL);
	/* No event is reported together with receipts. */
	CHECK(kevent(kq, kev, 3, out, 3, NULL) == 3);
	CHECK(out[0].flags & EV_ERROR && out[0].data == 0 && out[0].ident == (uintptr_t)fd[0] && out[0].udata == &kq);
	CHECK(out[1].flags & EV_ERROR && out[1].data == ENOENT && out[1].filter == EVFILT_WRITE);
	CHECK(out[2].flags & EV_ERROR && out[2].data == 0);
	/* The lists may overlap. */
	CHECK(kevent(kq, kev, 1, kev, 1, NULL) == 1 && kev[0].flags & EV_ERROR && kev[0].data == 0);
	CHECK(only(kq).filter == EVFILT_READ);
}

static void errors(void)
{
	int kq = kqueue(), fd[2];
	struct kevent kev, out;
	struct timespec wrong = {0, 1000000000};

	pair(fd);
	/* libevent's probe: one event at once. */
	EV_SET(&kev, -1, EVFILT_READ, EV_ADD, 0, 0, NULL);
	CHECK(kevent(kq, &kev, 1, &out, 1, NULL) == 1);
	CHECK(out.ident == (uintptr_t)-1 && out.flags & EV_ERROR && out.data == EBADF);
	CHECK(kevent(kq, &kev, 1, NULL, 0, NULL) == -1 && errno == EBADF);
	CHECK(add(kq, 1000, EVFILT_READ, 0) == EBADF);
	CHECK(change(kq, fd[0], EVFILT_READ, EV_DELETE, 0, 0, NULL) == ENOENT);
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ENABLE, 0, 0, NULL) == ENOENT);
	CHECK(change(kq, fd[0], EVFILT_READ, EV_ADD, 4, 0, NULL) == EINVAL);
	CHECK(add(kq, fd[0], -99, 0) == EINVAL && add(kq, fd[0], 0, 0) == EINVAL && add(kq, fd[0], -3, 0) == EINVAL);
	CHECK(add(kq, fd[0], EVFILT_READ, 0x0800) == EINVAL);
	CHECK(add(kq, kq, EVFILT_READ, 0) == EINVAL);
	CHECK(add(kq, kqueue(), EVFILT_READ, 0) == EINVAL);
	CHECK(change(kq, 1, EVFILT_TIMER, EV_ADD, 0, -1, NULL) == EINVAL);
	CHECK(change(kq, 1, EVFILT_TIMER, EV_ADD, NOTE_SECONDS | NOTE_NSECONDS, 1, NULL) == EINVAL);
	CHECK(change(kq, getpid(), EVFILT_PROC, EV_ADD, NOTE_FORK, 0, NULL) == ENOTSUP);
	CHECK(kevent(kq, NULL, 1, NULL, 0, NULL) == -1 && errno == EFAULT);
	CHECK(kevent(kq, NULL, 0, NULL, 1, &NOW) == -1 && errno == EFAULT);
	CHECK(kevent(kq, NULL, -1, NULL, 0, NULL) == -1 && errno == EINVAL);
	CHECK(kevent(kq, NULL, 0, &out, 1, &wrong) == -1 && errno == EINVAL);
	CHECK(kevent(fd[0], NULL, 0, &out, 1, &NOW) == -1 && errno == EBADF);
	CHECK(kevent(-1, NULL, 0, &out, 1, &NOW) == -1 && errno == EBADF);
	/* Nothing else was affected. */
	put(fd[1], "a");
	CHECK(add(kq, fd[0], EVFILT_READ, 0) == 0 && only(kq).data == 1);
}

static void user(void)
{
	int kq = kqueue();
	struct kevent kev;

	CHECK(change(kq, 7, EVFILT_USER, EV_ADD | EV_CLEAR, NOTE_FFNOP | 0x5, 0, &kq) == 0);
	CHECK(nothing(kq));
	CHECK(change(kq, 7, EVFILT_USER, 0, NOTE_TRIGGER | NOTE_FFOR | 0x8, 42, NULL) == 0);
	CHECK(change(kq, 7, EVFILT_USER, 0, NOTE_TRIGGER, 43, NULL) == 0);
	kev = only(kq);
	CHECK(kev.ident == 7 && kev.fflags == 0xd && kev.data == 43 && kev.udata == &kq);
	CHECK(nothing(kq));
	CHECK(change(kq, 7, EVFILT_USER, 0, NOTE_TRIGGER | NOTE_FFAND | 0x9, 0, NULL) == 0);
	CHECK(only(kq).fflags == 0x9);
	CHECK(change(kq, 7, EVFILT_USER, 0, NOTE_TRIGGER | NOTE_FFCOPY | 0x2, 0, NULL) == 0);
	CHECK(only(kq).fflags == 0x2 && nothing(kq));
	/* Without EV_CLEAR it stays triggered until it is changed. */
	CHECK(change(kq, -1, EVFILT_USER, EV_ADD, NOTE_TRIGGER, 0, NULL) == 0);
	CHECK(only(kq).ident == (uintptr_t)-1 && only(kq).ident == (uintptr_t)-1);
	CHECK(change(kq, -1, EVFILT_USER, EV_CLEAR, 0, 0, NULL) == 0 && nothing(kq));
	CHECK(change(kq, -1, EVFILT_USER, EV_DELETE, 0, 0, NULL) == 0);
	CHECK(change(kq, -1, EVFILT_USER, 0, NOTE_TRIGGER, 0, NULL) == ENOENT);
	/* While disabled, it remembers. */
	CHECK(change(kq, 7, EVFILT_USER, EV_DISABLE, NOTE_TRIGGER, 0, NULL) == 0 && nothing(kq));
	CHECK(change(kq, 7, EVFILT_USER, EV_ENABLE, 0, 0, NULL) == 0 && only(kq).ident == 7);
	CHECK(change(kq, 8, EVFILT_USER, EV_ADD | EV_DISPATCH, NOTE_TRIGGER, 0, NULL) == 0);
	CHECK(only(kq).ident == 8 && nothing(kq));
	CHECK(change(kq, 8, EVFILT_USER, EV_ENABLE, 0, 0, NULL) == 0 && only(kq).ident == 8 && nothing(kq));
}

static void timers(void)
{
	int kq = kqueue();
	struct timespec now;
	struct kevent kev;

	CHECK(change(kq, 1, EVFILT_TIMER, EV_ADD, 0, 1, &kq) == 0);
	for (int i = 0; i < 3; i++) {
		kev = only(kq);
		CHECK(kev.ident == 1 && kev.filter == EVFILT_TIMER && kev.data >= 1 && kev.udata == &kq);
	}
	CHECK(change(kq, 1, EVFILT_TIMER, EV_DELETE, 0, 0, NULL) == 0 && nothing(kq));
	CHECK(change(kq, 2, EVFILT_TIMER, EV_ADD | EV_ONESHOT, NOTE_USECONDS, 100, NULL) == 0);
	CHECK(only(kq).data == 1);
	CHECK(change(kq, 2, EVFILT_TIMER, EV_DELETE, 0, 0, NULL) == ENOENT);
	/* Added again, it starts anew: now it would take a day. */
	CHECK(change(kq, 3, EVFILT_TIMER, EV_ADD | EV_ONESHOT, NOTE_NSECONDS, 0, NULL) == 0);
	CHECK(change(kq, 3, EVFILT_TIMER, EV_ADD | EV_ONESHOT, NOTE_SECONDS, 86400, NULL) == 0 && nothing(kq));
	CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
	CHECK(change(kq, 4, EVFILT_TIMER, EV_ADD | EV_ONESHOT, NOTE_ABSTIME | NOTE_SECONDS, now.tv_sec - 5, NULL) == 0);
	CHECK(only(kq).ident == 4);
	CHECK(change(kq, 4, EVFILT_TIMER, EV_DELETE, 0, 0, NULL) == ENOENT);
}

static void signals(void)
{
	int kq = kqueue();
	struct kevent kev;

	CHECK(change(kq, SIGUSR1, EVFILT_SIGNAL, EV_ADD, 0, 0, &kq) == 0);
	CHECK(kill(getpid(), SIGUSR1) == 0);
	kev = only(kq);
	CHECK(kev.ident == SIGUSR1 && kev.filter == EVFILT_SIGNAL && kev.data == 1 && kev.udata == &kq);
	CHECK(nothing(kq));
	CHECK(change(kq, 0, EVFILT_SIGNAL, EV_ADD, 0, 0, NULL) == EINVAL);
	CHECK(change(kq, SIGUSR1, EVFILT_SIGNAL, EV_DELETE, 0, 0, NULL) == 0);
}

static void processes(void)
{
	int kq = kqueue(), go[2], status;
	struct kevent kev;
	char c;

	CHECK(pipe(go) == 0);
	pid_t child = fork();
	if (child == 0) {
		close(go[1]);
		_exit(read(go[0], &c, 1) == 0 ? 3 : 4);
	}
	CHECK(change(kq, child, EVFILT_PROC, EV_ADD, NOTE_EXIT, 0, &kq) == 0 && nothing(kq));
	close(go[1]);
	kev = only(kq);
	CHECK(kev.ident == (uintptr_t)child && kev.fflags == NOTE_EXIT && kev.flags & EV_EOF && kev.udata == &kq);
	CHECK(WIFEXITED(kev.data) && WEXITSTATUS(kev.data) == 3);
	CHECK(nothing(kq) && change(kq, child, EVFILT_PROC, EV_DELETE, 0, 0, NULL) == ENOENT);
	CHECK(waitpid(child, &status, 0) == child && status == kev.data);
	CHECK(change(kq, child, EVFILT_PROC, EV_ADD, NOTE_EXIT, 0, NULL) == ESRCH);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{"level", level}, {"clear", clear}, {"room", room}, {"oneshot", oneshot},
		{"dispatch", dispatch}, {"disable", disable},
		{"udata", udata}, {"receipt", receipt}, {"errors", errors}, {"user", user}, {"timers", timers},
		{"signals", signals}, {"processes", processes}, {NULL, NULL},
	};
	return run_test(tests, argc, argv);
}
