/* A program for tests of shared CPUs. Usage:
 *   share COUNTER batch THREADS: computes until it is killed;
 *   share COUNTER service THREADS ROUNDS: each thread sleeps for a millisecond, computes a little and takes a lock,
 *   ROUNDS times;
 *   share COUNTER idle THREADS: all threads wait until the program is killed;
 *   share COUNTER forks THREADS: each thread forks ten children, which fork one that only computes, and then execute
 *   this program as a service of one thread and three rounds.
 *
 * Each first checks that it is said to have as many CPUs as it may use.
 *
 * The file COUNTER holds three numbers of eight bytes: what the program has done, the longest time in which it did
 * nothing, in nanoseconds, and how often that was more than 10 ms. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct {
	_Atomic uint64_t done, longest, long_ones;
} *counter;

static _Atomic uint64_t last;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long rounds, sum;

static void count(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	uint64_t now = (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
	uint64_t before = atomic_exchange(&last, now), gap = before && now > before ? now - before : 0;
	atomic_fetch_add(&counter->done, 1);
	if (gap > counter->longest)
		counter->longest = gap;
	if (gap > 10000000)
		atomic_fetch_add(&counter->long_ones, 1);
}

static uint64_t compute(uint64_t seed, int steps)
{
	for (int step = 0; step < steps; step++)
		seed = seed * 6364136223846793005u + 1;
	return seed;
}

static void *batch(void *arg)
{
	uint64_t seed = (uintptr_t)arg;
	for (;;) {
		seed = compute(seed, 1000);
		/* A preemption must wait until this is over. */
		char *memory = malloc(64 + (seed >> 56));
		memset(memory, 1, 64);
		free(memory);
		count();
	}
	return NULL;
}

static void *service(void *arg)
{
	uint64_t seed = (uintptr_t)arg;
	for (long round = 0; round < rounds; round++) {
		struct timespec millisecond = {0, 1000000};
		nanosleep(&millisecond, NULL);
		seed = compute(seed, 10000);
		pthread_mutex_lock(&lock);
		sum += (long)(seed | 1) & 1;
		pthread_mutex_unlock(&lock);
		count();
	}
	return NULL;
}

static void *idle(void *arg)
{
	static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
	pthread_mutex_lock(&lock);
	count();
	for (;;)
		pthread_cond_wait(&never, &lock);
	return arg;
}

static char **arguments;

/* The child of a fork is no member. */
static int child(void)
{
	pid_t grandchild = fork();
	if (grandchild == 0)
		_exit((int)(compute(1, 100000) & 0));
	int status;
	if (grandchild < 0 || waitpid(grandchild, &status, 0) != grandchild || status != 0)
		return 1;
	execl("/proc/self/exe", "share", arguments[1], "service", "1", "3", (char *)NULL);
	return 2;
}

static void *forks(void *arg)
{
	for (int round = 0; round < 10; round++) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(child());
		int status = 1;
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
			printf("a child ended with %#x\n", status);
			exit(1);
		}
		count();
	}
	return arg;
}

/* Returns the number of CPUs, or 0 if the answers differ. */
static int cpus(void)
{
	cpu_set_t usable;
	if (sched_getaffinity(0, sizeof usable, &usable) != 0)
		return 0;
	int count = CPU_COUNT(&usable);
	return sysconf(_SC_NPROCESSORS_ONLN) == count && get_nprocs() == count ? count : 0;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	if (cpus() == 0) {
		printf("the numbers of CPUs differ\n");
		return 3;
	}
	int file = open(argv[1], O_RDWR), threads = atoi(argv[3]), is_service = strcmp(argv[2], "service") == 0;
	void *(*run)(void *) = batch;
	if (is_service)
		run = service;
	else if (strcmp(argv[2], "idle") == 0)
		run = idle;
	else if (strcmp(argv[2], "forks") == 0)
		run = forks;
	arguments = argv;
	void *memory = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	pthread_t thread[64];
	if (file < 0 || memory == MAP_FAILED || threads < 1 || threads > 64 || (is_service && argc < 5))
		return 2;
	counter = memory;
	rounds = is_service ? atol(argv[4]) : 0;
	for (long number = 0; number < threads; number++)
		if (pthread_create(&thread[number], NULL, run, (void *)number))
			return 1;
	for (int number = 0; number < threads; number++)
		pthread_join(thread[number], NULL);
	if (sum != threads * rounds) {
		printf("%ld rounds of %ld\n", sum, threads * rounds);
		return 1;
	}
	return 0;
}
