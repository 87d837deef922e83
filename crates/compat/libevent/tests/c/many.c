/* Several threads in the loop of one base. */
#include "threads.h"

#define CONNECTIONS 48
#define ROUNDS 150

/* A connection as in memcached: the event is inside, and is changed in its own callback. */
struct connection {
	struct event event;
	int fd, client, by, pins;
	const struct timeval *timeout;
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
	c->by = gettid();
	CHECK(event_add(&c->event, c->timeout) == 0);
}

static void serve(evutil_socket_t fd, short what, void *arg)
{
	struct connection *c = arg;
	CHECK(atomic_exchange(&c->busy, 1) == 0);
	CHECK(fd == c->fd && ((c->flags | EV_TIMEOUT) & what) == what);
	if (what & EV_READ) {
		if (get_one(fd) == 1) {
			c->requests++;
			change(c, EV_WRITE | EV_PERSIST | (c->pins ? EV_AFFINITY : 0));
		}
	} else if (what & EV_WRITE) {
		CHECK(c->answers + 1 == c->requests);
		CHECK(!c->pins || c->by == gettid());
		send_one(fd);
		c->answers++;
		change(c, EV_READ | EV_PERSIST);
	}
	/* It is not delivered to another thread while this one is still here. */
	for (int i = 0; i < 3; i++)
		sched_yield();
	atomic_store(&c->busy, 0);
}

static const struct timeval timeouts[] = { { 0, 1000 }, { 3600, 0 } };

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
		/* Some stay with their thread between request and answer; some have a timeout, which may or
		 * may not expire. */
		c->pins = i % 2;
		c->timeout = i % 3 ? &timeouts[i % 3 - 1] : NULL;
		c->flags = EV_READ | EV_PERSIST;
		event_set(&c->event, c->fd, c->flags, serve, c);
		CHECK(event_base_set(base, &c->event) == 0 && event_add(&c->event, c->timeout) == 0);
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
	const char *const policies[] = { "hybrid", "queue-affinity", "cpu-affinity", "best-of-two", "fifo",
					 "hybrid:affinity=queue,retry=100us,steal=4" };
	for (unsigned i = 0; i < sizeof policies / sizeof *policies; i++)
		answer_all((const char *const[]){ policies[i], NULL });
}

static void requests_while_the_policy_changes(void)
{
	answer_all((const char *const[]){ "hybrid", "fifo", "queue-affinity", "best-of-two", NULL });
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
	/* The descriptor is still ready, and nothing is delivered. */
	usleep(20000);
	CHECK(atomic_load(&inside) == 1);
	end();
}

/* Added by one thread while another is in the callback: delivered afterwards, once. */
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

/* One thread adds, activates and deletes events while others handle them: nothing is delivered after
 * event_del, nor to two threads at once. */
struct guarded {
	struct event event;
	int fds[2];
	unsigned seed;
	atomic_int busy, allowed, delivered;
};

static void guarded_callback(evutil_socket_t fd, short what, void *arg)
{
	struct guarded *g = arg;
	(void)fd;
	CHECK(what);
	CHECK(atomic_exchange(&g->busy, 1) == 0);
	CHECK(atomic_load(&g->allowed));
	atomic_fetch_add(&g->delivered, 1);
	if (what == EV_TIMEOUT)
		sched_yield();
	CHECK(atomic_load(&g->allowed));
	atomic_store(&g->busy, 0);
}

static void *guard(void *arg)
{
	struct guarded *g = arg;
	for (int i = 0; i < 1500; i++) {
		int kind = rand_r(&g->seed) % 6, delivered = atomic_load(&g->delivered);
		short what = kind & 1 ? EV_READ | EV_PERSIST : EV_READ;
		atomic_store(&g->allowed, 1);
		CHECK(event_assign(&g->event, base, kind == 5 ? -1 : g->fds[0], what, guarded_callback, g) == 0);
		CHECK(event_add(&g->event, kind >= 4 ? MS(rand_r(&g->seed) % 2) : NULL) == 0);
		if (kind < 4)
			send_one(g->fds[1]);
		if (kind == 2)
			event_active(&g->event, EV_WRITE, 1);
		if (kind != 3)
			until(&g->delivered, delivered + 1);
		CHECK(event_del(&g->event) == 0);
		atomic_store(&g->allowed, 0);
		while (get_one(g->fds[0]) == 1)
			;
	}
	return NULL;
}

static void nothing_is_delivered_after_deleting(void)
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

int main(int argc, char **argv)
{
	const struct test tests[] = {
		{ "requests_under_each_policy", requests_under_each_policy },
		{ "requests_while_the_policy_changes", requests_while_the_policy_changes },
		{ "deleting_waits", deleting_waits },
		{ "adding_while_it_runs", adding_while_it_runs },
		{ "nothing_is_delivered_after_deleting", nothing_is_delivered_after_deleting },
		{ NULL, NULL },
	};
	CHECK(argc == 2);
	return run_test(tests, argv[1]);
}
