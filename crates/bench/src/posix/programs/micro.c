/* What single operations of a pthread program cost, in CPU time of the whole process.
 *
 * Usage: micro OP MILLISECONDS. Prints {"cpu_ns_per_op": 24.5, "ops": 81000}. The bench confines the process to one
 * CPU. All operations but `child` run in created threads: Heddle leaves a program's first thread to the kernel. */
#include "program.h"
#include <linux/futex.h>
#include <sched.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *self;

/* Two threads take `n` turns together, half of them each. */
static void in_two(void *(*body)(void *), uint64_t n, uint64_t *each)
{
	*each = n / 2;
	pthread_t a = start(body, (void *)0), b = start(body, (void *)1);
	join(a);
	join(b);
}

static void *nothing(void *arg)
{
	return arg;
}

static void op_create_join(uint64_t n)
{
	while (n-- > 0)
		join(start(nothing, NULL));
}

static uint64_t turns;

static void *yielder(void *arg)
{
	for (uint64_t left = turns; left > 0; left--)
		sched_yield();
	return arg;
}

static void op_yield(uint64_t n)
{
	in_two(yielder, n, &turns);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void op_mutex(uint64_t n)
{
	while (n-- > 0) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	}
}

/* Two threads wake each other in turn: an operation is one wake-up and the switch that follows. */
static pthread_cond_t turn_of[2] = { PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER };
static int turn;

static void *cond_player(void *arg)
{
	int me = arg != NULL;
	pthread_mutex_lock(&lock);
	for (uint64_t i = 0; i < turns; i++) {
		while (turn != me)
			pthread_cond_wait(&turn_of[me], &lock);
		turn = !me;
		pthread_cond_signal(&turn_of[!me]);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void op_cond(uint64_t n)
{
	turn = 0;
	in_two(cond_player, n, &turns);
}

static sem_t sems[2];

static void *sem_player(void *arg)
{
	int me = arg != NULL;
	for (uint64_t i = 0; i < turns; i++) {
		while (sem_wait(&sems[me]) < 0 && errno == EINTR)
			;
		sem_post(&sems[!me]);
	}
	return NULL;
}

static void op_sem(uint64_t n)
{
	sure(sem_init(&sems[0], 0, 1), "sem_init");
	sure(sem_init(&sems[1], 0, 0), "sem_init");
	in_two(sem_player, n, &turns);
}

/* The calls of Rust's and other languages' condition variables. */
static _Atomic uint32_t words[2];

static void *futex_player(void *arg)
{
	int me = arg != NULL;
	for (uint64_t i = 0; i < turns; i++) {
		while (atomic_load(&words[me]) == 0)
			syscall(SYS_futex, &words[me], FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, FUTEX_BITSET_MATCH_ANY);
		atomic_store(&words[me], 0);
		atomic_store(&words[!me], 1);
		syscall(SYS_futex, &words[!me], FUTEX_WAKE_PRIVATE, 1);
	}
	return NULL;
}

static void op_futex(uint64_t n)
{
	atomic_store(&words[0], 1);
	atomic_store(&words[1], 0);
	in_two(futex_player, n, &turns);
}

static int ends[2];

static void open_ends(void)
{
	if (ends[1] == 0)
		sure(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
}

/* An operation is one call; none blocks. */
static void op_read_write(uint64_t n)
{
	char word[8] = "heddle";
	open_ends();
	for (uint64_t i = 0; i < n / 2; i++)
		if (write(ends[0], word, sizeof word) != sizeof word || read(ends[1], word, sizeof word) != sizeof word)
			fail("read and write", errno);
}

/* Each waits for a byte of the other: an operation is a send that wakes and the recv that it wakes. */
static void *recv_player(void *arg)
{
	int me = arg != NULL;
	char byte = 'h';
	for (uint64_t i = 0; i < turns; i++) {
		if (me == 0)
			sure(send(ends[0], &byte, 1, 0), "send");
		while (recv(ends[me], &byte, 1, 0) != 1)
			if (errno != EINTR)
				fail("recv", errno);
		if (me == 1)
			sure(send(ends[1], &byte, 1, 0), "send");
	}
	return NULL;
}

static void op_recv_blocks(uint64_t n)
{
	open_ends();
	in_two(recv_player, n, &turns);
}

static void op_clock_gettime(uint64_t n)
{
	struct timespec t;
	while (n-- > 0)
		clock_gettime(CLOCK_MONOTONIC, &t);
}

static void op_malloc_free(uint64_t n)
{
	while (n-- > 0) {
		void *block = malloc(64);
		/* Otherwise the compiler removes both calls. */
		__asm__ volatile("" : "+r"(block) : : "memory");
		free(block);
	}
}

static void op_getspecific(uint64_t n)
{
	pthread_key_t key;
	check(pthread_key_create(&key, NULL), "pthread_key_create");
	check(pthread_setspecific(key, &key), "pthread_setspecific");
	while (n-- > 0)
		if (pthread_getspecific(key) != &key)
			fail("pthread_getspecific", EINVAL);
	check(pthread_key_delete(key), "pthread_key_delete");
}

/* A process that ends at once, with the caller's environment. */
static void op_child(uint64_t n)
{
	char *argv[] = { (char *)self, "noop", "0", NULL };
	while (n-- > 0) {
		pid_t child;
		int status;
		check(posix_spawn(&child, self, NULL, NULL, argv, environ), "posix_spawn");
		sure(waitpid(child, &status, 0), "waitpid");
		if (status != 0)
			fail("the child", ECHILD);
	}
}

/* `least` operations are the smallest run that says something. */
static const struct op {
	const char *name;
	void (*run)(uint64_t n);
	uint64_t least;
} ops[] = {
	{ "create_join", op_create_join, 500 },
	{ "yield", op_yield, 2000 },
	{ "mutex", op_mutex, 2000 },
	{ "cond", op_cond, 2000 },
	{ "sem", op_sem, 2000 },
	{ "futex", op_futex, 2000 },
	{ "read_write", op_read_write, 2000 },
	{ "recv_blocks", op_recv_blocks, 2000 },
	{ "clock_gettime", op_clock_gettime, 2000 },
	{ "malloc_free", op_malloc_free, 2000 },
	{ "getspecific", op_getspecific, 2000 },
	{ "child", op_child, 5 },
};

static double cpu_ns(void)
{
	struct rusage children;
	sure(getrusage(RUSAGE_CHILDREN, &children), "getrusage");
	struct timeval user = children.ru_utime, kernel = children.ru_stime;
	double us = (double)(user.tv_sec + kernel.tv_sec) * 1e6 + (double)(user.tv_usec + kernel.tv_usec);
	return (double)read_clock(CLOCK_PROCESS_CPUTIME_ID) + us * 1e3;
}

static double ns_per_op(const struct op *op, uint64_t n)
{
	double begin = cpu_ns();
	op->run(n);
	return (cpu_ns() - begin) / (double)n;
}

static long budget_ms;

/* Warms up, estimates, then runs for about the time that was asked for. */
static void *measure(void *arg)
{
	const struct op *op = arg;
	ns_per_op(op, op->least);
	double estimate = ns_per_op(op, op->least);
	uint64_t n = (uint64_t)((double)budget_ms * 1e6 / (estimate + 0.1));
	n = n < op->least ? op->least : n;
	printf("{\"cpu_ns_per_op\": %.3f, \"ops\": %llu}\n", ns_per_op(op, n), (unsigned long long)n);
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: micro OP MILLISECONDS\n");
		return 2;
	}
	if (strcmp(argv[1], "noop") == 0)
		return 0;
	self = argv[0];
	budget_ms = number(argv[2], 0, "MILLISECONDS");
	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
		if (strcmp(ops[i].name, argv[1]) != 0)
			continue;
		if (ops[i].run == op_child)
			measure((void *)&ops[i]);
		else
			join(start(measure, (void *)&ops[i]));
		return 0;
	}
	fprintf(stderr, "no operation `%s`\n", argv[1]);
	return 2;
}
