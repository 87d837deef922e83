/* What is reported of descriptors, and what becomes of those that are closed. */
#include "test.h"
#include <netinet/in.h>
#include <sys/stat.h>

static int listening(struct sockaddr_in *at)
{
	socklen_t size = sizeof *at;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	*at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CHECK(bind(fd, (struct sockaddr *)at, sizeof *at) == 0 && getsockname(fd, (struct sockaddr *)at, &size) == 0);
	return fd;
}

static int connected(const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(connect(fd, (const struct sockaddr *)to, sizeof *to) == 0);
	return fd;
}

static void connections(void)
{
	struct sockaddr_in at;
	int kq = kqueue(), listener = listening(&at);

	CHECK(listen(listener, 8) == 0 && add(kq, listener, EVFILT_READ, 0) == 0 && nothing(kq));
	int a = connected(&at), b = connected(&at);
	struct kevent kev = only(kq);
	CHECK(kev.ident == (uintptr_t)listener && kev.data >= 1);
	int c = accept(listener, NULL, NULL);
	CHECK(only(kq).data >= 1);
	int d = accept(listener, NULL, NULL);
	CHECK(nothing(kq));
	/* An end after bytes, then alone. */
	CHECK(add(kq, d, EVFILT_READ, 0) == 0);
	put(b, "xy");
	CHECK(shutdown(b, SHUT_WR) == 0 && only(kq).data == 2);
	take(d, 2);
	kev = only(kq);
	CHECK(kev.flags & EV_EOF && kev.data == 0 && kev.fflags == 0);
	close(d);
	/* A reset. */
	struct linger at_once = {1, 0};
	CHECK(add(kq, c, EVFILT_READ, 0) == 0);
	CHECK(setsockopt(a, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
	close(a);
	kev = only(kq);
	CHECK(kev.ident == (uintptr_t)c && kev.flags & EV_EOF && kev.fflags == ECONNRESET);
}

/* An edge with both bytes and an end reports both. */
static void end_at_an_edge(void)
{
	int kq = kqueue(), fd[2];

	pair(fd);
	put(fd[1], "abc");
	CHECK(shutdown(fd[1], SHUT_WR) == 0 && add(kq, fd[0], EVFILT_READ, EV_CLEAR) == 0);
	struct kevent kev = only(kq);
	CHECK(kev.data == 3 && kev.flags & EV_EOF);
}

/* Programs ask the socket why it could not connect. */
static void refused(void)
{
	struct sockaddr_in at;
	int kq = kqueue(), closed = listening(&at), error = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	socklen_t size = sizeof error;

	connect(fd, (struct sockaddr *)&at, sizeof at);
	CHECK(add(kq, fd, EVFILT_WRITE, EV_CLEAR) == 0 && only(kq).flags & EV_EOF);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == ECONNREFUSED);
	close(closed);
}

static void room(void)
{
	int kq = kqueue(), fd[2];
	static char page[4096];
	ssize_t n;

	CHECK(pipe2(fd, O_NONBLOCK) == 0 && add(kq, fd[1], EVFILT_WRITE, 0) == 0);
	struct kevent kev = only(kq);
	int64_t all = kev.data;
	CHECK(all >= 4096 && !(kev.flags & EV_EOF));
	put(fd[1], "abc");
	CHECK(only(kq).data == all - 3);
	while ((n = write(fd[1], page, sizeof page)) > 0)
		;
	CHECK(nothing(kq));
	/* libevent's test for a working kqueue. */
	take(fd[0], 4096);
	take(fd[0], 4096);
	CHECK(only(kq).ident == (uintptr_t)fd[1]);
	close(fd[0]);
	CHECK(only(kq).flags & EV_EOF);
	/* A pipe's reader gets the end. */
	close(fd[1]);
	CHECK(pipe(fd) == 0 && change(kq, fd[1], EVFILT_WRITE, EV_DELETE, 0, 0, NULL) == ENOENT);
	CHECK(add(kq, fd[0], EVFILT_READ, 0) == 0);
	close(fd[1]);
	kev = only(kq);
	CHECK(kev.ident == (uintptr_t)fd[0] && kev.flags & EV_EOF && kev.data == 0);
}

/* Both filters on one descriptor are two events, registered and deleted in any order. */
static void both(void)
{
	int kq = kqueue(), fd[2];
	struct kevent kev[4];

	pair(fd);
	for (int first = 0; first < 2; first++) {
		int a = first ? EVFILT_READ : EVFILT_WRITE, b = first ? EVFILT_WRITE : EVFILT_READ;
		CHECK(add(kq, fd[0], a, 0) == 0 && add(kq, fd[0], b, 0) == 0);
		put(fd[1], "a");
		CHECK(kevent(kq, NULL, 0, kev, 4, &HANG) == 2 || kevent(kq, NULL, 0, kev, 4, &HANG) == 2);
		CHECK(kev[0].filter != kev[1].filter && kev[0].ident == kev[1].ident);
		CHECK(change(kq, fd[0], a, EV_DELETE, 0, 0, NULL) == 0 && only(kq).filter == b);
		CHECK(add(kq, fd[0], a, EV_DISABLE) == 0 && only(kq).filter == b);
		CHECK(change(kq, fd[0], b, EV_DELETE, 0, 0, NULL) == 0 && nothing(kq));
		CHECK(change(kq, fd[0], a, EV_ENABLE, 0, 0, NULL) == 0 && only(kq).filter == a);
		CHECK(change(kq, fd[0], a, EV_DELETE, 0, 0, NULL) == 0 && nothing(kq));
		take(fd[0], 1);
	}
}

/* A descriptor that is always ready does not keep others from being reported. */
static void fair(void)
{
	int kq = kqueue(), fd[2];
	struct kevent kev[1];
	int seen = 0;

	pair(fd);
	CHECK(add(kq, fd[0], EVFILT_WRITE, 0) == 0 && only(kq).filter == EVFILT_WRITE);
	CHECK(add(kq, fd[1], EVFILT_READ, 0) == 0);
	put(fd[0], "a");
	for (int i = 0; i < 1000 && !seen; i++)
		seen = kevent(kq, NULL, 0, kev, 1, &HANG) == 1 && kev[0].filter == EVFILT_READ;
	CHECK(seen);
}

/* A reused number is another descriptor. */
static void reused(void)
{
	int kq = kqueue(), old[2], new[2], a, b;

	pair(old);
	CHECK(change(kq, old[0], EVFILT_READ, EV_ADD, 0, 0, &a) == 0);
	CHECK(change(kq, old[0], EVFILT_WRITE, EV_ADD | EV_DISABLE, 0, 0, &a) == 0);
	put(old[1], "a");
	CHECK(only(kq).udata == &a);
	/* Closed while it is held, and reused before it is released. */
	pair(new);
	CHECK(dup2(new[0], old[0]) == old[0]);
	put(new[1], "bc");
	CHECK(nothing(kq));
	CHECK(change(kq, old[0], EVFILT_READ, EV_DELETE, 0, 0, NULL) == ENOENT);
	CHECK(change(kq, old[0], EVFILT_READ, EV_ADD, 0, 0, &b) == 0);
	struct kevent kev = only(kq);
	CHECK(kev.udata == &b && kev.data == 2);
	CHECK(change(kq, old[0], EVFILT_WRITE, EV_ENABLE, 0, 0, NULL) == ENOENT);
	close(old[0]);
	CHECK(nothing(kq) && change(kq, old[0], EVFILT_READ, EV_DELETE, 0, 0, NULL) == EBADF);
	/* A copy that was closed, and a new copy. */
	int copy = dup(new[0]);
	CHECK(add(kq, copy, EVFILT_READ, 0) == 0 && only(kq).data == 2);
	close(copy);
	CHECK(nothing(kq) && dup2(new[0], copy) == copy && change(kq, copy, EVFILT_READ, EV_ADD, 0, 0, &b) == 0);
	CHECK(only(kq).udata == &b);
	close(copy);
	/* eventfds cannot be distinguished, and work after EV_ADD all the same. */
	int first = eventfd(1, EFD_NONBLOCK);
	CHECK(change(kq, first, EVFILT_READ, EV_ADD, 0, 0, &a) == 0 && only(kq).udata == &a);
	close(first);
	int second = eventfd(0, EFD_NONBLOCK);
	CHECK(second == first && change(kq, second, EVFILT_READ, EV_ADD, 0, 0, &b) == 0 && nothing(kq));
	CHECK(eventfd_write(second, 1) == 0 && only(kq).udata == &b);
}

static void files(void)
{
	int kq = kqueue();
	FILE *file = tmpfile();

	CHECK(file && fputs("abcdef", file) >= 0 && fflush(file) == 0);
	CHECK(lseek(fileno(file), 2, SEEK_SET) == 2 && add(kq, fileno(file), EVFILT_READ, 0) == 0);
	CHECK(only(kq).data == 4 && only(kq).data == 4);
	CHECK(change(kq, fileno(file), EVFILT_READ, EV_DELETE, 0, 0, NULL) == 0 && nothing(kq));
}

static void changes_of_files(void)
{
	int kq = kqueue();
	char name[] = "/tmp/heddle-kqueue-XXXXXX", other[64];
	int fd = mkstemp(name);
	struct kevent kev;

	snprintf(other, sizeof other, "%s-other", name);
	CHECK(change(kq, fd, EVFILT_VNODE, EV_ADD, 1u << 31, 0, NULL) == EINVAL);
	CHECK(change(kq, fd, EVFILT_VNODE, EV_ADD | EV_CLEAR, NOTE_WRITE | NOTE_EXTEND | NOTE_RENAME, 0, &kq) == 0);
	CHECK(nothing(kq));
	put(fd, "abc");
	kev = only(kq);
	CHECK(kev.ident == (uintptr_t)fd && kev.fflags == (NOTE_WRITE | NOTE_EXTEND) && kev.udata == &kq);
	CHECK(fchmod(fd, 0600) == 0 && nothing(kq));
	CHECK(rename(name, other) == 0 && only(kq).fflags == NOTE_RENAME);
	CHECK(change(kq, fd, EVFILT_VNODE, EV_ADD | EV_CLEAR, NOTE_DELETE, 0, NULL) == 0);
	put(fd, "d");
	CHECK(nothing(kq) && unlink(other) == 0 && only(kq).fflags & NOTE_DELETE);
	CHECK(change(kq, fd, EVFILT_VNODE, EV_DELETE, 0, 0, NULL) == 0);
	CHECK(change(kq, fd, EVFILT_VNODE, EV_DELETE, 0, 0, NULL) == ENOENT);
}

static void datagrams(void)
{
	int kq = kqueue(), fd[2];
	char c;

	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, fd) == 0 && add(kq, fd[0], EVFILT_READ, 0) == 0);
	CHECK(send(fd[1], "", 0, 0) == 0);
	struct kevent kev = only(kq);
	CHECK(kev.data == 0 && !(kev.flags & EV_EOF));
	CHECK(recv(fd[0], &c, 1, 0) == 0);
	CHECK(nothing(kq));
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{"connections", connections}, {"end_at_an_edge", end_at_an_edge}, {"refused", refused}, {"room", room},
		{"both", both}, {"fair", fair}, {"reused", reused}, {"files", files},
		{"changes_of_files", changes_of_files}, {"datagrams", datagrams}, {NULL, NULL},
	};
	return run_test(tests, argc, argv);
}
