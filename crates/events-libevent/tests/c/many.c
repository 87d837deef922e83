/* Several threads in the loop of one base. */
#include "check.h"

#define THREADS 4
#define CONNECTIONS 48
#define ROUNDS 150

static struct event_base *base;
static pthread_t threads[THREADS];

static void begin(const char *policy)
{
	base = heddle_event_base_new(policy);
	CHECK(base);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, handle, base) == 0);
	until_in_loop(base, THREADS);
}

static void join(long said)
{
	for (int i = 0; i < THREADS; i++) {
		void *result;
		CHECK(pthread_join(threads[i], &result) == 0);
		CHECK((long)result == said);
	}
}

static void end(void)
{
	CHECK(event_base_loopbreak(base) == 0);
	join(0);
	event_base_free(base);
}

/* A connection as memcached has it: the event inside, changed in its own function. */
struct connection {
	struct event event;
	int fd, client;
	short flags;
	unsigned requests, answers;
	atomic_int busy;
};

static void serve(evutil_socket_t fd, short what, void *arg);

static void change(struct connection *c, short flags)
{
	struct event_base *its = c->event.ev_base;
	CHECK(its == base);
	if (c->flags == flags)
		return;
	CHECK(event_del(&c->event) == 0);
	event_set(&c->event, c->fd, flags, serve, c);
	CHECK(event_base_set(its, &c->event) == 0);
	c->flags = flags;
	CHECK(event_add(&c->event, NULL) == 0);
}

static void serve(evutil_socket_t fd, short what, void *arg)
{
	struct connection *c = arg;
	CHECK(atomic_exchange(&c->busy, 1) == 0);
	CHECK(fd == c->fd && (c->flags & what));
	if (what & EV_READ) {
		if (get_one(fd) == 1) {
			c->requests++;
			change(c, EV_WRITE | EV_PERSIST);
		}
	} else {
		CHECK(c->answers + 1 == c->requests);
		send_one(fd);
		c->answers++;
		change(c, EV_READ | EV_PERSIST);
	}
	/* It is not told to another thread while this one is here still. */
	for (int i = 0; i < 3; i++)
		sched_yield();
	atomic_store(&c->busy, 0);
}

static void answer_all(const char *const *policies)
{
	static struct connection all[CONNECTIONS];
	begin(policies[0]);
	memset(all, 0, sizeof all);
	for (int i = 0; i < CONNECTIONS; i++) {
		int fds[2];
		pair(fds);
		struct connection *c = &all[i];
		c->fd = fds[0];
		c->client = fds[1];
		c->flags = EV_READ | EV_PERSIST;
		event_set(&c->event, c->fd, c->flags, serve, c);
		CHECK(event_base_set(base, &c->event) == 0 && event_add(&c->event, NULL) == 0);
	}
	const char *const *policy = policies;
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < CONNECTIONS; i++)
			send_one(all[i].client);
		if (policies[1] && heddle_event_base_policy(base, *policy) == 0)
			policy = policy[1] ? policy + 1 : policies;
		for (int i = 0; i < CONNECTIONS; i++)
			while (get_one(all[i].client) != 1)
				usleep(20);
	}
	end();
	for (int i = 0; i < CONNECTIONS; i++) {
		CHECK(all[i].requests == ROUNDS && all[i].answers == ROUNDS);
		CHECK(get_one(all[i].client) == -1 && errno == EAGAIN);
		close(all[i].fd);
		close(all[i].client);
	}
}

static void requests_under_each_policy(void)
{
	const char *const policies[] = { "hybrid", "queue-affinity", "cpu-affinity", "best-of-two", "fifo", "hybrid:affinity=queue,retry=100us,steal=4" };
	for (unsigned i = 0; i < sizeof policies / sizeof *policies; i++)
		answer_all((const char *const[]){ policies[i], NULL });
}

static void requests_while_the_policy_changes(void)
{
	answer_all((const char *const[]){ "hybrid", "fifo", "queue-affinity", "best-of-two", NULL });
}

/* A function that stays until it is let go. */
static atomic_int inside, go, done;

static void stay(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	atomic_fetch_add(&inside, 1);
	until(&go, 1);
	usleep(50000);
	atomic_fetch_add(&done, 1);
}

static atomic_int deleting;

static void *delete_it(void *event)
{
	atomic_store(&deleting, 1);
	CHECK(event_del(event) == 0);
	CHECK(atomic_load(&done) == 1);
	return NULL;
}

static void deleting_waits(void)
{
	struct event event;
	pthread_t deleter;
	int fds[2];
	begin(NULL);
	pair(fds);
	send_one(fds[1]);
	CHECK(event_assign(&event, base, fds[0], EV_READ | EV_PERSIST, stay, NULL) == 0);
	CHECK(event_add(&event, NULL) == 0);
	until(&inside, 1);
	CHECK(event_del_noblock(&event) == 0 && atomic_load(&done) == 0);
	CHECK(pthread_create(&deleter, NULL, delete_it, &event) == 0);
	until(&deleting, 1);
	usleep(20000);
	atomic_store(&go, 1);
	CHECK(pthread_join(deleter, NULL) == 0);
	/* The descriptor is still ready, and nobody is told. */
	usleep(20000);
	CHECK(atomic_load(&inside) == 1);
	end();
}

/* Added by one thread while another is in the function: told after that, once. */
static void adding_while_it_runs(void)
{
	struct event event;
	begin(NULL);
	CHECK(event_assign(&event, base, -1, EV_READ, stay, NULL) == 0);
	event_active(&event, EV_READ, 1);
	until(&inside, 1);
	for (int i = 0; i < 5; i++)
		event_active(&event, EV_READ, 1);
	usleep(20000);
	CHECK(atomic_load(&inside) == 1);
	atomic_store(&go, 1);
	until(&done, 2);
	usleep(20000);
	CHECK(atomic_load(&inside) == 2);
	end();
}

/* Events that one thread adds, activates and deletes while others handle them: nothing is told after event_del, nor twice at a time. */
struct guarded {
	struct event event;
	int fds[2];
	unsigned seed;
	atomic_int busy, allowed, told;
};

static void guarded_told(evutil_socket_t fd, short what, void *arg)
{
	struct guarded *g = arg;
	(void)fd;
	CHECK(what);
	CHECK(atomic_exchange(&g->busy, 1) == 0);
	CHECK(atomic_load(&g->allowed));
	atomic_fetch_add(&g->told, 1);
	if (what == EV_TIMEOUT)
		sched_yield();
	CHECK(atomic_load(&g->allowed));
	atomic_store(&g->busy, 0);
}

static void *guard(void *arg)
{
	struct guarded *g = arg;
	for (int i = 0; i < 1500; i++) {
		int kind = rand_r(&g->seed) % 6, told = atomic_load(&g->told);
		short what = kind & 1 ? EV_READ | EV_PERSIST : EV_READ;
		atomic_store(&g->allowed, 1);
		CHECK(event_assign(&g->event, base, kind == 5 ? -1 : g->fds[0], what, guarded_told, g) == 0);
		CHECK(event_add(&g->event, kind >= 4 ? MS(rand_r(&g->seed) % 2) : NULL) == 0);
		if (kind < 4)
			send_one(g->fds[1]);
		if (kind == 2)
			event_active(&g->event, EV_WRITE, 1);
		if (kind != 3)
			until(&g->told, told + 1);
		CHECK(event_del(&g->event) == 0);
		atomic_store(&g->allowed, 0);
		while (get_one(g->fds[0]) == 1)
			;
	}
	return NULL;
}

static void nothing_is_told_after_deleting(void)
{
	static struct guarded all[4];
	pthread_t guards[4];
	begin("hybrid");
	for (int i = 0; i < 4; i++) {
		pair(all[i].fds);
		all[i].seed = (unsigned)i;
		CHECK(pthread_create(&guards[i], NULL, guard, &all[i]) == 0);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(guards[i], NULL);
	end();
}

static atomic_int told;

static void read_one(evutil_socket_t fd, short what, void *arg)
{
	(void)what;
	(void)arg;
	if (get_one(fd) == 1)
		atomic_fetch_add(&told, 1);
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
		until(&told, sent);
	}
	CHECK(atomic_load(&told) == sent && sent > 0);
	end();
}

static atomic_int where, by_others, leave;

static void where_am_i(evutil_socket_t fd, short what, void *arg)
{
	(void)arg;
	CHECK(what == EV_READ && get_one(fd) == 1);
	if (atomic_load(&where) != gettid())
		atomic_fetch_add(&by_others, 1);
	if (atomic_load(&told) == 199)
		atomic_store(&leave, 1);
	atomic_fetch_add(&told, 1);
}

static atomic_int ready, may_return;

static void *pinned_thread(void *arg)
{
	int *fds = arg;
	static struct event mine;
	atomic_store(&where, gettid());
	/* Before it is in the loop, as memcached's threads do. */
	CHECK(event_assign(&mine, base, fds[0], EV_READ | EV_PERSIST | EV_AFFINITY, where_am_i, NULL) == 0);
	CHECK(event_add(&mine, NULL) == 0);
	atomic_store(&ready, 1);
	while (!atomic_load(&leave))
		CHECK(event_base_loop(base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY) == 0);
	atomic_store(&ready, 2);
	until(&may_return, 1);
	while (atomic_load(&told) < 220)
		CHECK(event_base_loop(base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY) == 0);
	CHECK(event_del(&mine) == 0);
	return NULL;
}

/* A pinned event is told to its thread alone, and waits while that is not in the loop. */
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
		until(&told, i);
	}
	until(&ready, 2);
	for (int i = 0; i < 20; i++)
		send_one(fds[1]);
	usleep(50000);
	CHECK(atomic_load(&told) == 200);
	atomic_store(&may_return, 1);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(atomic_load(&told) == 220 && atomic_load(&by_others) == 0);
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

/* All threads come back when no event is left. */
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

/* A base is freed while threads wait in its loop and are in functions. */
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

/* All threads end by one call, after a time too. */
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

/* Threads that stay in functions hold no event that another thread could have: all four are in one at a time. */
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

/* A signal and a timeout while all share. */
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
		{ "requests_under_each_policy", requests_under_each_policy },
		{ "requests_while_the_policy_changes", requests_while_the_policy_changes },
		{ "deleting_waits", deleting_waits },
		{ "adding_while_it_runs", adding_while_it_runs },
		{ "nothing_is_told_after_deleting", nothing_is_told_after_deleting },
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
