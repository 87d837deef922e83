// SPDX-License-Identifier: GPL-2.0
/*
 * Counts instructions, on a machine whose time stamp counter does: Bochs with one CPU. Prints the median of each path,
 * with those that the processor makes of one instruction counted as one.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>
#include <x86gprintrin.h>

#include "../include/heddle_uintr.h"

#define ROUNDS 1001

static int device;
static volatile uint64_t entered;
static uint64_t samples[ROUNDS];

static __attribute__((interrupt, target("general-regs-only"))) void handler(void *frame, uint64_t vector)
{
	entered = __builtin_ia32_rdtsc();
}

static void on_signal(int number)
{
	entered = __builtin_ia32_rdtsc();
}

static int by_value(const void *a, const void *b)
{
	return *(const uint64_t *)a < *(const uint64_t *)b ? -1 : 1;
}

static void print(const char *what)
{
	qsort(samples, ROUNDS, sizeof(*samples), by_value);
	printf("%s: %llu\n", what, (unsigned long long)samples[ROUNDS / 2]);
}

static void check(int status, const char *what)
{
	if (status < 0) {
		perror(what);
		exit(1);
	}
}

static void enroll(bool receives)
{
	struct heddle_uintr_register what = { .receiver = HEDDLE_UINTR_NONE };

	if (receives) {
		what.flags = HEDDLE_UINTR_RECEIVE;
		what.handler = (uint64_t)handler;
		what.stack_adjust = 128;
	}
	check(ioctl(device, HEDDLE_UINTR_REGISTER, &what), "register");
}

static volatile bool done;

static void *yields(void *registers)
{
	if (registers)
		enroll(true);
	while (!done)
		sched_yield();
	return NULL;
}

/* A yield that comes back through another thread: two switches. */
static void count_switches(bool registered, const char *what)
{
	pthread_t other;
	uint64_t begin;
	int i;

	done = false;
	pthread_create(&other, NULL, yields, registered ? &device : NULL);
	for (i = 0; i < 100; i++)
		sched_yield();
	for (i = 0; i < ROUNDS; i++) {
		begin = __builtin_ia32_rdtsc();
		sched_yield();
		samples[i] = (__builtin_ia32_rdtsc() - begin) / 2;
	}
	done = true;
	pthread_join(other, NULL);
	print(what);
}

int main(void)
{
	struct heddle_uintr_target to = { .vector = 1 };
	struct heddle_uintr_timer timer = {
		.kind = HEDDLE_UINTR_TIMER_HR, .flags = HEDDLE_UINTR_TIMER_ONCE, .vector = 1, .receiver = HEDDLE_UINTR_NONE
	};
	struct itimerspec in_an_hour = { .it_value.tv_sec = 3600 };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2 };
	timer_t posix;
	uint64_t begin;
	int i;

	device = open(HEDDLE_UINTR_DEVICE, O_RDWR | O_CLOEXEC);
	check(device, HEDDLE_UINTR_DEVICE);
	count_switches(false, "kernel switch, threads not registered");
	enroll(true);
	count_switches(true, "kernel switch, both threads receivers");
	check(ioctl(device, HEDDLE_UINTR_CONNECT, &to), "connect");
	for (i = 0; i < ROUNDS; i++) {
		entered = 0;
		begin = __builtin_ia32_rdtsc();
		_senduipi(to.index);
		while (!entered)
			;
		samples[i] = entered - begin;
	}
	print("SENDUIPI to oneself until the handler runs");
	for (i = 0; i < ROUNDS; i++) {
		entered = 0;
		_clui();
		_senduipi(to.index);
		_senduipi(to.index);
		begin = __builtin_ia32_rdtsc();
		_stui();
		while (!entered)
			;
		samples[i] = __builtin_ia32_rdtsc() - begin;
	}
	print("STUI, handler, UIRET");
	signal(SIGUSR1, on_signal);
	for (i = 0; i < ROUNDS; i++) {
		begin = __builtin_ia32_rdtsc();
		kill(getpid(), SIGUSR1);
		samples[i] = entered - begin;
	}
	print("kill of oneself until the signal's handler runs");
	for (i = 0; i < ROUNDS; i++) {
		kill(getpid(), SIGUSR1);
		samples[i] = __builtin_ia32_rdtsc() - entered;
	}
	print("from the signal's handler back");
	timer.period_ns = 3600000000000;
	for (i = 0; i < ROUNDS; i++) {
		begin = __builtin_ia32_rdtsc();
		check(ioctl(device, HEDDLE_UINTR_TIMER, &timer), "timer");
		samples[i] = __builtin_ia32_rdtsc() - begin;
	}
	print("setting a receiver's timer");
	check(timer_create(CLOCK_MONOTONIC, &event, &posix), "timer_create");
	for (i = 0; i < ROUNDS; i++) {
		begin = __builtin_ia32_rdtsc();
		check(timer_settime(posix, 0, &in_an_hour, NULL), "timer_settime");
		samples[i] = __builtin_ia32_rdtsc() - begin;
	}
	print("setting a POSIX timer");
	return 0;
}
