/* One thread: what libevent's manual specifies for events, timeouts, signals and loops. */
#include "check.h"

#include <sys/wait.h>

static struct event_base *base;
static struct event event;
static int called, last, fds[2];

static void count(evutil_socket_t fd, short what, void *arg)
{
	(void)arg;
	called++;
	last = what;
	if (what & EV_READ)
		CHECK(get_one(fd) >= 0);
}

static void once(void)
{
	CHECK(event_base_loop(base, EVLOOP_ONCE) == 0);
}

static void reading(void)
{
	event_set(&event, fds[0], EV_READ | EV_PERSIST, count, NULL);
	CHECK(event_base_set(base, &event) == 0 && event.ev_base == base);
	CHECK(event_initialized(&event) && event_get_fd(&event) == fds[0] && !event_pending(&event, EV_READ, NULL));
	CHECK(event_add(&event, NULL) == 0 && event_add(&event, NULL) == 0);
	CHECK(event_pending(&event, EV_READ | EV_WRITE, NULL) == EV_READ);
	CHECK(event_base_loop(base, EVLOOP_NONBLOCK) == 0 && called == 0);
	/* It reads one byte at a time: the rest is reported again. */
	CHECK(write(fds[1], "abc", 3) == 3);
	for (int i = 1; i <= 3; i++) {
		once();
		CHECK(called == i && last == EV_READ);
	}
	CHECK(event_base_loop(base, EVLOOP_NONBLOCK) == 0 && called == 3);
	/* An end is reported as readable. */
	close(fds[1]);
	once();
	CHECK(called == 4 && last == EV_READ);
	CHECK(event_del(&event) == 0 && event_del(&event) == 0);
	CHECK(event_base_loop(base, 0) == 1 && called == 4);
}

static void again_once(evutil_socket_t fd, short what, void *arg)
{
	called++;
	CHECK(fd == fds[0] && what == EV_READ && arg == &event);
	CHECK(!event_pending(&event, EV_READ | EV_TIMEOUT, NULL));
	if (called == 1) {
		CHECK(event_add(&event, NULL) == 0);
		CHECK(event_pending(&event, EV_READ, NULL));
	}
}

/* Its descriptor stays ready: it is reported once for each time it is added. */
static void not_persistent(void)
{
	CHECK(event_assign(&event, base, fds[0], EV_READ, again_once, &event) == 0 && event_add(&event, NULL) == 0);
	send_one(fds[1]);
	CHECK(event_base_loop(base, 0) == 1 && called == 2);
}

/* As in memcached's update_event: the direction changes in the event's own callback. */
static void flip(evutil_socket_t fd, short what, void *arg)
{
	short next = what == EV_READ ? EV_WRITE : EV_READ;
	called++;
	CHECK(what == last);
	if (what == EV_READ)
		CHECK(get_one(fd) == 1);
	else
		send_one(fd);
	struct event_base *its = event.ev_base;
	CHECK(event_del(&event) == 0);
	event_set(&event, fd, next | EV_PERSIST, flip, arg);
	CHECK(event_base_set(its, &event) == 0);
	CHECK(event_add(&event, NULL) == 0);
	last = next;
}

static void flipping(void)
{
	last = EV_READ;
	CHECK(event_assign(&event, base, fds[0], EV_READ | EV_PERSIST, flip, NULL) == 0);
	CHECK(event_add(&event, NULL) == 0);
	for (int i = 0; i < 1000; i++) {
		send_one(fds[1]);
		once();
		once();
		CHECK(called == 2 * (i + 1) && get_one(fds[1]) == 1);
		CHECK(event_base_loop(base, EVLOOP_NONBLOCK) == 0 && called == 2 * (i + 1));
	}
}

/* Two events on a descriptor, one for reading and one for writing, and a third. */
static void several_on_one_descriptor(void)
{
	struct event *events[3];
	const short what[] = { EV_READ, EV_WRITE, EV_READ | EV_PERSIST };
	send_one(fds[1]);
	for (int i = 0; i < 3; i++) {
		events[i] = event_new(base, fds[0], what[i], count, NULL);
		CHECK(events[i] && event_add(events[i], NULL) == 0);
	}
	send_one(fds[1]);
	while (called < 3)
		once();
	event_free(events[2]);
	CHECK(event_base_loop(base, 0) == 1 && called == 3);
	event_free(events[0]);
	event_free(events[1]);
}

static long began;

static void timed(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	called++;
	last = what;
	long waited = now_us() - began, least = *(long *)arg;
	CHECK(waited >= least);
	began = now_us();
}

static void timeouts(void)
{
	long least = 30000;
	struct timeval when, now;
	evtimer_set(&event, timed, &least);
	event_base_set(base, &event);
	began = now_us();
	CHECK(evtimer_add(&event, MS(30)) == 0 && evtimer_pending(&event, &when));
	gettimeofday(&now, NULL);
	CHECK(evutil_timercmp(&when, &now, >) && when.tv_sec - now.tv_sec <= 1);
	CHECK(event_base_loop(base, 0) == 1 && called == 1 && last == EV_TIMEOUT);
	/* Later, then sooner. */
	least = 10000, began = now_us();
	CHECK(evtimer_add(&event, MS(3600000)) == 0 && evtimer_add(&event, MS(10)) == 0);
	CHECK(event_base_loop(base, 0) == 1 && called == 2);
	CHECK(evtimer_add(&event, MS(0)) == 0 && evtimer_del(&event) == 0);
	CHECK(event_base_loop(base, 0) == 1 && called == 2);
	least = 0;
	CHECK(evtimer_add(&event, MS(0)) == 0);
	CHECK(event_base_loop(base, 0) == 1 && called == 3);
}

/* A reader's timeout restarts with each event. */
static void timeout_of_a_reader(void)
{
	CHECK(event_assign(&event, base, fds[0], EV_READ | EV_PERSIST, count, NULL) == 0);
	began = now_us();
	CHECK(event_add(&event, MS(400)) == 0);
	usleep(100000);
	send_one(fds[1]);
	/* Before: the timeout restarts within, however long this thread then waits for a CPU. */
	long read_at = now_us();
	once();
	CHECK(called == 1 && last == EV_READ);
	CHECK(event_pending(&event, EV_READ | EV_TIMEOUT, NULL) == (EV_READ | EV_TIMEOUT));
	for (int i = 1; i <= 2; i++) {
		once();
		CHECK(called == 1 + i && last == EV_TIMEOUT);
		CHECK(now_us() - read_at >= 400000L * i);
	}
	send_one(fds[1]);
	once();
	CHECK(called == 4 && last == EV_READ);
	CHECK(event_del(&event) == 0 && event_base_loop(base, 0) == 1);
}

static void tick(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	CHECK(what == EV_TIMEOUT);
	if (++called == 5)
		return;
	/* As memcached's clock. */
	evtimer_del(&event);
	evtimer_set(&event, tick, arg);
	event_base_set(base, &event);
	CHECK(evtimer_add(&event, MS(1)) == 0);
}

static void clock_that_sets_itself(void)
{
	tick(-1, EV_TIMEOUT, NULL);
	CHECK(event_base_loop(base, 0) == 1 && called == 5);
	called = 0;
	CHECK(event_assign(&event, base, -1, EV_PERSIST, count, NULL) == 0);
	CHECK(event_add(&event, MS(1)) == 0);
	while (called < 5)
		once();
	CHECK(last == EV_TIMEOUT && event_del(&event) == 0);
}

static void activating(void)
{
	CHECK(event_assign(&event, base, -1, 0, count, NULL) == 0);
	event_active(&event, EV_WRITE, 1);
	CHECK(event_pending(&event, EV_WRITE, NULL) == EV_WRITE);
	event_active(&event, EV_TIMEOUT, 1);
	CHECK(event_base_loop(base, 0) == 1 && called == 1 && last == (EV_WRITE | EV_TIMEOUT));
	event_active(&event, EV_WRITE, 1);
	CHECK(event_del(&event) == 0 && event_base_loop(base, 0) == 1 && called == 1);
	/* An event that waits stays. */
	CHECK(event_assign(&event, base, fds[0], EV_WRITE | EV_PERSIST | EV_ET, count, NULL) == 0 &&
	      event_add(&event, NULL) == 0);
	once();
	CHECK(called == 2 && last == EV_WRITE);
	event_active(&event, EV_TIMEOUT, 1);
	once();
	CHECK(called == 3 && (last & EV_TIMEOUT) && event_pending(&event, EV_WRITE, NULL));
}

static void signals(void)
{
	CHECK(evsignal_assign(&event, base, SIGUSR1, count, NULL) == 0);
	CHECK(evsignal_add(&event, NULL) == 0 && evsignal_pending(&event, NULL));
	for (int i = 1; i <= 3; i++) {
		raise(SIGUSR1);
		once();
		CHECK(called == i && last == EV_SIGNAL);
	}
	CHECK(event_base_loop(base, EVLOOP_NONBLOCK) == 0 && called == 3);
	CHECK(evsignal_del(&event) == 0 && event_base_loop(base, 0) == 1);
	evsignal_assign(&event, base, SIGKILL, count, NULL);
	CHECK(evsignal_add(&event, NULL) == -1 && errno == EINVAL);
	evsignal_assign(&event, base, -1, count, NULL);
	CHECK(evsignal_add(&event, NULL) == -1 && errno == EINVAL);
}

static void free_itself(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	called++;
	struct event *mine = *(struct event **)arg;
	event_free(mine);
	/* Nothing of it is read after that. */
	struct event *other = event_new(base, -1, 0, count, NULL);
	event_active(other, EV_READ, 0);
	event_free(other);
}

static void freed_in_its_callback(void)
{
	struct event *mine = event_new(base, fds[0], EV_WRITE | EV_PERSIST, free_itself, &mine);
	CHECK(event_add(mine, NULL) == 0);
	CHECK(event_base_loop(base, 0) == 1 && called == 1);
}

static void stop(evutil_socket_t fd, short what, void *how)
{
	(void)fd;
	(void)what;
	called++;
	if (how)
		event_base_loopbreak(base);
	else
		event_base_loopexit(base, NULL);
}

static int order[9];

static void note_order(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	order[called++] = *(int *)arg;
}

/* Whatever came before it. */
static void high_priority_first(void)
{
	struct event events[9];
	static int numbers[9];
	for (int i = 0; i < 9; i++) {
		numbers[i] = i;
		event_assign(&events[i], base, -1, 0, note_order, &numbers[i]);
		CHECK(event_priority_set(&events[i], i == 8 ? 0 : 1) == 0);
		event_active(&events[i], EV_TIMEOUT, 1);
	}
	CHECK(event_base_loop(base, 0) == 1 && called == 9 && order[0] == 8);
}

/* A break leaves events uncalled; an exit calls them first. */
static void ends_of_a_loop(void)
{
	struct event events[8];
	for (int how = 0; how <= 1; how++) {
		called = 0;
		for (int i = 0; i < 8; i++) {
			event_assign(&events[i], base, -1, 0, stop, how ? base : NULL);
			event_active(&events[i], EV_TIMEOUT, 1);
		}
		CHECK(event_base_loop(base, 0) == 0);
		CHECK(event_base_got_break(base) == how && event_base_got_exit(base) == !how);
		CHECK(how ? called == 1 : called >= 1);
		while (called < 8)
			CHECK(event_base_loop(base, 0) == 0);
		CHECK(event_base_loop(base, 0) == 1 && called == 8);
	}
	began = now_us();
	CHECK(event_assign(&event, base, fds[0], EV_READ, count, NULL) == 0);
	CHECK(event_add(&event, NULL) == 0);
	CHECK(event_base_loopexit(base, MS(50)) == 0);
	CHECK(event_base_loop(base, 0) == 0 && now_us() - began >= 50000);
	CHECK(event_base_loopexit(base, NULL) == 0 && event_base_loop(base, 0) == 0);
}

/* A child has the parent's epolls: what it does must not affect the parent. */
static void child_of_fork(void)
{
	int status;
	CHECK(event_assign(&event, base, fds[0], EV_READ | EV_PERSIST, count, NULL) == 0 && event_add(&event, NULL) == 0);
	pid_t child = fork();
	if (child == 0) {
		CHECK(event_base_loop(base, EVLOOP_NONBLOCK) == -1 && errno == EBADF);
		CHECK(event_add(&(struct event){ 0 }, NULL) == -1);
		event_del(&event);
		CHECK(event_add(&event, NULL) == -1 && errno == EBADF);
		event_base_free(base);
		base = event_base_new();
		CHECK(event_assign(&event, base, -1, 0, count, NULL) == 0);
		event_active(&event, EV_TIMEOUT, 1);
		_exit(event_base_loop(base, 0) == 1 && called == 1 ? 7 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	send_one(fds[1]);
	once();
	CHECK(called == 1 && event_del(&event) == 0);
}

static void bad_input(void)
{
	struct event bad = { 0 };
	CHECK(event_base_loop(NULL, 0) == -1 && errno == EINVAL);
	CHECK(event_base_loopexit(NULL, NULL) == -1 && event_base_loopbreak(NULL) == -1);
	event_base_free(NULL);
	event_config_free(NULL);
	event_free(NULL);
	CHECK(event_add(NULL, NULL) == -1 && event_del(NULL) == -1 && !event_pending(NULL, EV_READ, NULL));
	event_active(NULL, EV_READ, 1);
	CHECK(!event_initialized(&bad) && event_add(&bad, NULL) == -1 && errno == EINVAL);
	CHECK(event_del(&bad) == -1 && event_get_fd(NULL) == -1);
	CHECK(event_assign(&bad, base, 1, EV_READ, NULL, NULL) == -1);
	CHECK(event_assign(&bad, base, 1, EV_READ | EV_SIGNAL, count, NULL) == -1 && errno == EINVAL);
	CHECK(!event_new(base, 1, EV_READ | EV_SIGNAL, count, NULL));
	/* No base. */
	event_set(&bad, fds[0], EV_READ, count, NULL);
	CHECK(event_add(&bad, NULL) == -1 && errno == EINVAL);
	/* -1 is never ready; a descriptor that is not open is an error and changes nothing. */
	CHECK(event_assign(&bad, base, -1, EV_READ, count, NULL) == 0 && event_add(&bad, NULL) == 0);
	CHECK(event_base_loop(base, EVLOOP_NONBLOCK) == 0 && called == 0);
	CHECK(event_base_set(base, &bad) == -1 && event_del(&bad) == 0);
	CHECK(event_assign(&bad, base, 999, EV_READ, count, NULL) == 0);
	CHECK(event_add(&bad, NULL) == -1 && errno == EBADF && !event_pending(&bad, EV_READ, NULL));
	CHECK(event_add(&bad, &(struct timeval){ -1, 0 }) == -1 && errno == EINVAL);
	CHECK(event_add(&bad, &(struct timeval){ 0, 1000000 }) == -1);
	CHECK(event_base_loop(base, 0) == 1);
	CHECK(!heddle_event_base_new("hybird") && errno == EINVAL);
	CHECK(heddle_event_base_policy(base, "nobody") == -1 && errno == EINVAL);
	CHECK(heddle_event_base_policy(base, NULL) == -1);
	CHECK(heddle_event_base_priority(base, 0, 0) == -1 && heddle_event_base_priority(base, 50, -1) == -1);
	CHECK(heddle_event_base_priority(base, 50, 100) == 0);
	CHECK(heddle_event_base_dump(base, -1) == -1 && errno == EBADF && heddle_event_base_dump(base, 2) == 0);
}

int main(int argc, char **argv)
{
	const struct test tests[] = {
		{ "reading", reading },
		{ "not_persistent", not_persistent },
		{ "flipping", flipping },
		{ "several_on_one_descriptor", several_on_one_descriptor },
		{ "timeouts", timeouts },
		{ "timeout_of_a_reader", timeout_of_a_reader },
		{ "clock_that_sets_itself", clock_that_sets_itself },
		{ "activating", activating },
		{ "signals", signals },
		{ "freed_in_its_callback", freed_in_its_callback },
		{ "ends_of_a_loop", ends_of_a_loop },
		{ "high_priority_first", high_priority_first },
		{ "child_of_fork", child_of_fork },
		{ "bad_input", bad_input },
		{ NULL, NULL },
	};
	CHECK(argc == 2);
	struct event_config *config = event_config_new();
	CHECK(event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK) == 0);
	base = event_base_new_with_config(config);
	event_config_free(config);
	CHECK(base);
	pair(fds);
	int result = run_test(tests, argv[1]);
	event_base_free(base);
	return result;
}
