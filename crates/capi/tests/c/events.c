/* Makes every call of heddle/event.h once. */
#include <errno.h>
#include <fcntl.h>
#include <heddle/client.h>
#include <heddle/event.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what) do { \
	if (!(what)) { \
		printf("line %d: not so: %s (errno %d: %s)\n", __LINE__, #what, errno, hd_error()); \
		return 0; \
	} \
} while (0)

int main(void)
{
	struct kevent change, event;
	struct timespec hang = {30, 0};
	int pipes[2], kq = heddle_kqueue1(O_CLOEXEC);

	CHECK(kq >= 0 && pipe(pipes) == 0);
	CHECK(fcntl(kq, F_GETFD) == FD_CLOEXEC && heddle_kqueue1(-1) == -1 && errno == EINVAL);
	EV_SET(&change, pipes[0], EVFILT_READ, EV_ADD, 0, 0, &kq);
	CHECK(heddle_kevent(kq, &change, 1, NULL, 0, NULL) == 0);
	CHECK(write(pipes[1], "ab", 2) == 2);
	CHECK(heddle_kevent(kq, NULL, 0, &event, 1, &hang) == 1);
	CHECK(event.ident == (uintptr_t)pipes[0] && event.data == 2 && event.udata == &kq);
	CHECK(heddle_kqueue_policy(kq, "cpu-affinity") == 0);
	CHECK(heddle_kqueue_policy(kq, "nothing") == -1 && errno == EINVAL && strstr(hd_error(), "nothing"));
	CHECK(heddle_kqueue_multi(kq, KQ_SCHED_BEST | KQ_SCHED_ARGS(2)) == 0);
	CHECK(heddle_kqueue_tune(kq, KQTUNE_FREQ | 1000 << 16) == 0);
	CHECK(heddle_kqueue_share(kq, 50) == 0 && heddle_kqueue_frequency(kq, 0) == 0);
	CHECK(heddle_kqueue_idle(kq, pipes[1], EVFILT_READ, 1) == -1 && errno == ENOENT);
	CHECK(heddle_kqueue_stats(kq, NULL, 0) > 0);
	CHECK(heddle_kqueue_leave(kq) == 0 && heddle_kqueue_leave(kq) == -1 && errno == ENOENT);
	CHECK(heddle_kqueue_close(kq) == 0 && heddle_kqueue_close(kq) == -1 && errno == EBADF);
	kq = heddle_kqueue();
	CHECK(kq >= 0 && close(kq) == 0);
	puts("fine");
	return 0;
}
