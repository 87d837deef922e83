/* Threads that enter and leave the loop of a shared base. */
#include "threads.h"

static atomic_int delivered;

static void read_one(evutil_socket_t fd, short what, void *arg)
{
	(void)what;
	(void)arg;
	if (get_one(fd) == 1)
		atomic_fetch_add(&delivered, 1);
}

static void *come_and_go(void *at)
{
	for (int i = 0; i < 30; i++)
		CHECK(event_base_loop(at, i % 2 ? EVLOOP_NONBLOCK : EVLOOP_ONCE) == 0);
	return NULL;
}

static void threads_come_and_go(void)
{
	struct event events[16];
	int fds[16][2];
	pthread_t guest;
	begin(NULL);
	for (int i = 0; i < 16; i++) {
		pair(fds[i]);
		CHECK(event_assign(&events[i], base, fds[i][0], EV_READ | EV_PERSIST, read_one, NULL) == 0);
		CHECK(event_add(&events[i], NULL) == 0);
	}
	CHECK(pthread_create(&guest, NULL, come_and_go, base) == 0);
	int sent = 0;
	while (pthread_tryjoin_np(guest, NULL) != 0) {
		for (int i = 0; i < 16; i++, sent++)
			send_one(fds[i][1]);
		until(&delivered, sent);
	}
	CHECK(atomic_load(&delivered) == sent && sent > 0);
	end();
}

static atomic_int where, by_others, leave;

static void where_am_i(evutil_socket_t fd, short what, void *arg)
{
	(void)arg;
	CHECK(what == EV_READ && get_one(fd) == 1);
	if (atomic_load(&where) != gettid())
		atomic_fetch_add(&by_others, 1);
	if (atomic_load(&delivered) == 199)
		atomic_store(&leave, 1);
	atomic_fetch_add(&delivered, 1);
}

static atomic_int ready, may_return;

static void *pinned_thread(void *arg)
{
	int *fds = arg;
	static struct event mine;
	atomic_store(&where, gettid());
	/* Added before it is in the loop, as memcached's threads do. */
	CHECK(event_assign(&mine, base, fds[0], EV_READ | EV_PERSIST | EV_AFFINITY, where_am_i, NULL) == 0);
	CHECK(event_add(&mine, NULL) == 0);
	atomic_store(&ready, 1);
	while (!atomic_load(&leave))
		CHECK(event_base_loop(base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY) == 0);
	atomic_store(&ready, 2);
	until(&may_return, 1);
	while (atomic_load(&delivered) < 220)
		CHECK(event_base_loop(base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY) == 0);
	CHECK(event_del(&mine) == 0);
	return NULL;
}

/* A pinned event is delivered only to its thread, and waits while that thread is not in the loop. */
static void pinned(void)
{
	int fds[2];
	pthread_t thread;
	begin(NULL);
	pair(fds);
	CHECK(pthread_create(&thread, NULL, pinned_thread, fds) == 0);
	until(&ready, 1);
	for (int i = 1; i <= 200; i++) {
		send_one(fds[1]);
		until(&delivered, i);
	}
	until(&ready, 2);
	for (int i = 0; i < 20; i++)
		send_one(fds[1]);
	usleep(50000);
	CHECK(atomic_load(&delivered) == 200);
	atomic_store(&may_return, 1);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(atomic_load(&delivered) == 220 && atomic_load(&by_others) == 0);
	end();
}

static void *handle_until_empty(void *at)
{
	return (void *)(long)event_base_dispatch(at);
}

static void nothing(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
}

/* All threads return when no event is left. */
static void until_empty(void)
{
	struct event event;
	base = event_base_new();
	CHECK(event_assign(&event, base, -1, EV_PERSIST | EV_READ, nothing, NULL) == 0);
	CHECK(event_add(&event, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, handle_until_empty, base) == 0);
	until_in_loop(base, THREADS);
	CHECK(event_del(&event) == 0);
	join(1);
	event_base_free(base);
}

/* A base is freed while threads wait in its loop and run callbacks. */
static void freed_while_threads_loop(void)
{
	struct event event;
	begin(NULL);
	CHECK(event_assign(&event, base, -1, 0, stay, NULL) == 0);
	event_active(&event, EV_READ, 1);
	until(&inside, 1);
	atomic_store(&go, 1);
	event_base_free(base);
	CHECK(atomic_load(&done) == 1);
	join(0);
}

/* One call ends all threads, also after a time. */
static void exit_of_all(void)
{
	begin(NULL);
	CHECK(event_base_loopexit(base, MS(20)) == 0);
	join(0);
	CHECK(event_base_got_exit(base));
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, handle, base) == 0);
	until_in_loop(base, THREADS);
	CHECK(event_base_loopexit(base, NULL) == 0);
	join(0);
	event_base_free(base);
}

/* Threads that stay in callbacks hold no event that another thread could take: all four are in one at a time. */
static void all_threads_handle(void)
{
	struct event events[THREADS];
	struct heddle_event_thread who[THREADS];
	begin("hybrid");
	for (int i = 0; i < THREADS; i++) {
		CHECK(event_assign(&events[i], base, -1, 0, stay, NULL) == 0);
		event_active(&events[i], EV_READ, 1);
		until(&inside, i + 1);
	}
	atomic_store(&go, 1);
	until(&done, THREADS);
	CHECK(heddle_event_base_threads(base, NULL, 0) == THREADS);
	CHECK(heddle_event_base_threads(base, who, THREADS) == THREADS);
	for (int i = 0; i < THREADS; i++)
		CHECK(who[i].calls == 1 && who[i].in_loop && who[i].tid);
	end();
}

/* A signal and a timeout while all threads share the base. */
static void note(evutil_socket_t fd, short what, void *arg)
{
	CHECK(what & (fd == SIGUSR2 ? EV_SIGNAL : EV_TIMEOUT));
	atomic_fetch_add((atomic_int *)arg, 1);
}

static void signals_and_timers(void)
{
	atomic_int times[2] = { 0 };
	begin(NULL);
	struct event *on_signal = evsignal_new(base, SIGUSR2, note, &times[0]);
	struct event *timer = event_new(base, -1, EV_PERSIST, note, &times[1]);
	CHECK(evsignal_add(on_signal, NULL) == 0 && event_add(timer, MS(1)) == 0);
	for (int i = 1; i <= 50; i++) {
		kill(getpid(), SIGUSR2);
		until(&times[0], i);
		until(&times[1], i);
	}
	event_free(timer);
	event_free(on_signal);
	int ended = atomic_load(&times[1]);
	usleep(20000);
	CHECK(atomic_load(&times[1]) == ended);
	end();
}

int main(int argc, char **argv)
{
	const struct test tests[] = {
		{ "threads_come_and_go", threads_come_and_go },
		{ "pinned", pinned },
		{ "until_empty", until_empty },
		{ "freed_while_threads_loop", freed_while_threads_loop },
		{ "exit_of_all", exit_of_all },
		{ "all_threads_handle", all_threads_handle },
		{ "signals_and_timers", signals_and_timers },
		{ NULL, NULL },
	};
	CHECK(argc == 2);
	return run_test(tests, argv[1]);
}
