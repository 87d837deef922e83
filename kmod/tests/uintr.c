// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the module, on any machine where it is loaded: `uintr [SENDS [CASE...]]` prints a line for each case, or for
 * all but -CASE, and ends with 1 if one failed. Each case is a process of its own, and must leave nothing registered.
 * SENDS is how many interrupts of each kind are sent.
 *
 * What is sent is handled, or merged with a later one that is: each send has a number, written before it, and the
 * handler must have seen the last one. No case compares times.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86gprintrin.h>

#include "../include/heddle_uintr.h"

#define NONE HEDDLE_UINTR_NONE
#define RED_ZONE 128
#define VECTOR 5
#define LIMIT_S 600 /* a hang, not a speed */

static uint64_t sends = 2000;
static int device;

static _Atomic uint64_t sequence; /* number of the last send */
static _Atomic uint64_t seen; /* the greatest that a handler read */
static _Atomic uint64_t handled;
static _Atomic uint64_t wrong; /* vectors that were not sent */
static _Atomic bool done, ready;
static _Atomic int receiver_cpu;

static void fail(const char *what, uint64_t got, uint64_t wanted)
{
	printf("    %s: %llu, not %llu (errno %d)\n", what, (unsigned long long)got, (unsigned long long)wanted, errno);
	fflush(stdout);
	_exit(1);
}

#define EQUAL(got, wanted)                                                                                             \
	do {                                                                                                           \
		uint64_t g = (got), w = (wanted);                                                                      \
		if (g != w)                                                                                            \
			fail(#got, g, w);                                                                              \
	} while (0)
#define HOLDS(what) EQUAL(!!(what), 1)
#define FAILS(call, number)                                                                                            \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		EQUAL((call), (uint64_t)-1);                                                                           \
		EQUAL(errno, (number));                                                                                \
	} while (0)

struct frame {
	uint64_t rip, flags, sp;
};

static __attribute__((interrupt, target("general-regs-only"))) void handler(struct frame *frame, uint64_t vector)
{
	uint64_t number = atomic_load(&sequence);

	if (vector != VECTOR)
		atomic_fetch_add(&wrong, 1);
	if (number > atomic_load(&seen))
		atomic_store(&seen, number);
	atomic_fetch_add(&handled, 1);
}

static int open_device(void)
{
	int fd = open(HEDDLE_UINTR_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		perror(HEDDLE_UINTR_DEVICE);
		_exit(1);
	}
	return fd;
}

static struct heddle_uintr_info info_of(int fd)
{
	struct heddle_uintr_info info;

	EQUAL(ioctl(fd, HEDDLE_UINTR_INFO, &info), 0);
	EQUAL(info.version, HEDDLE_UINTR_VERSION);
	return info;
}

static uint32_t receive_with(void *at)
{
	struct heddle_uintr_register what = { .flags = HEDDLE_UINTR_RECEIVE,
					      .receiver = NONE,
					      .handler = (uint64_t)at,
					      .stack_adjust = RED_ZONE };

	EQUAL(ioctl(device, HEDDLE_UINTR_REGISTER, &what), 0);
	return what.receiver;
}

static uint32_t receive(void)
{
	return receive_with(handler);
}

static void send_only(void)
{
	struct heddle_uintr_register what = { .receiver = NONE };

	EQUAL(ioctl(device, HEDDLE_UINTR_REGISTER, &what), 0);
	EQUAL(what.receiver, NONE);
}

static uint32_t connect_to(uint32_t receiver, uint32_t vector)
{
	struct heddle_uintr_target what = { .receiver = receiver, .vector = vector };

	EQUAL(ioctl(device, HEDDLE_UINTR_CONNECT, &what), 0);
	return what.index;
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	EQUAL(sched_setaffinity(0, sizeof(set), &set), 0);
}

static int cpus(void)
{
	return sysconf(_SC_NPROCESSORS_ONLN);
}

/* Sends number COUNTER to TARGET. */
static void send_number(uint32_t target, uint64_t number)
{
	atomic_store(&sequence, number);
	_senduipi(target);
}

/* Waits for what this thread has sent itself: a notification takes a moment. */
static void await_own(_Atomic uint64_t *count, uint64_t number)
{
	while (atomic_load(count) < number)
		;
	EQUAL(atomic_load(count), number);
}

/* Waits for another thread; gives the CPU away, which it may need. */
static void await_seen(uint64_t number)
{
	while (atomic_load(&seen) < number)
		sched_yield();
}

static void await(_Atomic bool *flag)
{
	while (!atomic_load(flag))
		sched_yield();
}

static pthread_t start(void *(*body)(void *), void *argument)
{
	pthread_t thread;

	EQUAL(pthread_create(&thread, NULL, body, argument), 0);
	return thread;
}

static void join(pthread_t thread)
{
	EQUAL(pthread_join(thread, NULL), 0);
}

/* What a receiver does until `done`. */
enum behaviour { SPIN, YIELD, CALL, BLOCK, MIGRATE };

static _Atomic uint32_t target;
static int pipes[2];

static void *receiver(void *argument)
{
	enum behaviour behaviour = (enum behaviour)(uintptr_t)argument;
	char byte;
	int cpu = 0;

	pin(receiver_cpu);
	atomic_store(&target, connect_to(receive(), VECTOR));
	atomic_store(&ready, true);
	while (!atomic_load(&done)) {
		switch (behaviour) {
		case SPIN:
			break;
		case YIELD:
			sched_yield();
			break;
		case CALL:
			syscall(SYS_getppid);
			break;
		case BLOCK:
			EQUAL(read(pipes[0], &byte, 1), 1);
			break;
		case MIGRATE:
			cpu = (cpu + 1) % cpus();
			pin(cpu);
			break;
		}
	}
	/* Whatever is posted has been delivered where this returns to user mode. */
	syscall(SYS_getppid);
	EQUAL(ioctl(device, HEDDLE_UINTR_UNREGISTER), 0);
	return NULL;
}

/* Sends from CPU `from` to a receiver on CPU `to`: one by one, and all at once. */
static void send_to(enum behaviour behaviour, int from, int to)
{
	pthread_t thread;
	uint64_t i;

	receiver_cpu = to;
	thread = start(receiver, (void *)behaviour);
	await(&ready);
	pin(from);
	send_only();
	for (i = 1; i <= sends; i++) {
		send_number(target, i);
		if (behaviour == BLOCK)
			EQUAL(write(pipes[1], "x", 1), 1);
		await_seen(i);
	}
	EQUAL(handled, sends);
	for (; i <= 2 * sends; i++)
		send_number(target, i);
	if (behaviour == BLOCK)
		EQUAL(write(pipes[1], "x", 1), 1);
	await_seen(2 * sends);
	HOLDS(handled > sends && handled <= 2 * sends);
	atomic_store(&done, true);
	if (behaviour == BLOCK)
		EQUAL(write(pipes[1], "x", 1), 1);
	join(thread);
	EQUAL(wrong, 0);
}

static void self(void)
{
	uint32_t me = connect_to(receive(), VECTOR);
	uint64_t i;

	for (i = 1; i <= sends; i++) {
		send_number(me, i);
		await_own(&seen, i);
	}
	EQUAL(handled, sends);
	EQUAL(connect_to(0, VECTOR), me);
}

static void held_off(void)
{
	uint32_t me = connect_to(receive(), VECTOR);
	uint64_t i;

	for (i = 0; i < sends; i++) {
		_clui();
		EQUAL(_testui(), 0);
		_senduipi(me);
		_senduipi(me);
		/* Not even across a switch and a system call. */
		if (i % 64 == 0)
			usleep(1);
		EQUAL(handled, i);
		_stui();
		await_own(&handled, i + 1);
		EQUAL(_testui(), 1);
	}
}

static void cross(void)
{
	send_to(SPIN, 1, 0);
}

static void descheduled(void)
{
	send_to(YIELD, 0, 0);
	HOLDS(info_of(device).resumed > 0);
}

static void in_system_call(void)
{
	send_to(CALL, cpus() - 1, 0);
}

static void blocked(void)
{
	EQUAL(pipe(pipes), 0);
	send_to(BLOCK, cpus() - 1, 0);
}

static void migrating(void)
{
	send_to(MIGRATE, 1, 0);
	HOLDS(info_of(device).migrated > 0);
}

/* The highest of several pending vectors comes first, each once. */
static int order[3];
static _Atomic int delivered;

static __attribute__((interrupt, target("general-regs-only"))) void in_order(struct frame *frame, uint64_t vector)
{
	order[delivered++ % 3] = vector;
}

static void vectors(void)
{
	uint32_t me = receive_with(in_order);
	uint32_t low = connect_to(me, 0), middle = connect_to(me, 31), high = connect_to(me, 63);
	uint64_t i;

	for (i = 0; i < sends; i++) {
		delivered = 0;
		_clui();
		_senduipi(middle);
		_senduipi(high);
		_senduipi(low);
		_stui();
		while (delivered < 3)
			;
		HOLDS(order[0] == 63 && order[1] == 31 && order[2] == 0);
	}
}

static void timer(uint32_t kind, uint32_t flags, uint64_t period_ns)
{
	struct heddle_uintr_timer what = {
		.kind = kind, .flags = flags, .vector = VECTOR, .receiver = NONE, .period_ns = period_ns
	};

	EQUAL(ioctl(device, HEDDLE_UINTR_TIMER, &what), 0);
}

static void hr_timer(void)
{
	struct heddle_uintr_info info;
	uint64_t before;

	receive();
	timer(HEDDLE_UINTR_TIMER_HR, 0, 200000);
	while (handled < 50)
		;
	/* Without a CPU for a hundred ticks, it ticks once; then they go on. */
	before = info_of(device).ticks;
	usleep(20000);
	HOLDS(info_of(device).ticks < before + 20);
	seen = handled;
	while (handled < seen + 20)
		;
	timer(HEDDLE_UINTR_TIMER_OFF, 0, 0);
	info = info_of(device);
	/* Each is handled, or merged with the one before. */
	HOLDS(handled <= info.ticks);
	seen = handled;
	usleep(20000);
	EQUAL(handled, seen);
	EQUAL(info_of(device).ticks, info.ticks);
	handled = 0;
	timer(HEDDLE_UINTR_TIMER_HR, HEDDLE_UINTR_TIMER_ONCE, 200000);
	while (handled < 1)
		;
	usleep(20000);
	EQUAL(handled, 1);
	EQUAL(info_of(device).ticks, info.ticks + 1);
}

/* A thread sets the timer of another, and leaves it alone where that has ended. */
static void timer_of_another(void)
{
	struct heddle_uintr_timer what = {
		.kind = HEDDLE_UINTR_TIMER_HR, .flags = HEDDLE_UINTR_TIMER_ONCE, .vector = VECTOR, .period_ns = 100000
	};
	pthread_t thread = start(receiver, (void *)YIELD);
	uint64_t i;

	await(&ready);
	for (i = 1; i <= 20; i++) {
		EQUAL(ioctl(device, HEDDLE_UINTR_TIMER, &what), 0);
		while (handled < i)
			sched_yield();
	}
	what.kind = HEDDLE_UINTR_TIMER_APIC;
	what.flags = 0;
	FAILS(ioctl(device, HEDDLE_UINTR_TIMER, &what), EBUSY);
	what.kind = HEDDLE_UINTR_TIMER_HR;
	what.flags = 0;
	EQUAL(ioctl(device, HEDDLE_UINTR_TIMER, &what), 0);
	done = true;
	join(thread);
	FAILS(ioctl(device, HEDDLE_UINTR_TIMER, &what), ENOENT);
	usleep(1000);
	i = info_of(device).ticks;
	usleep(5000);
	EQUAL(info_of(device).ticks, i);
}

/* Posts the next tick itself, as long as there is a delegated timer: afterwards that would send an interrupt. */
static uint32_t own;
static _Atomic bool ticking;

static __attribute__((interrupt, target("general-regs-only"))) void on_tick(struct frame *frame, uint64_t vector)
{
	if (ticking)
		_senduipi(own);
	if (vector != VECTOR)
		wrong++;
	handled++;
}

static void *compute(void *argument)
{
	/* On the CPU of the thread that started it. */
	while (!done)
		seen++;
	return NULL;
}

/* A delegated timer on CPU `cpu`; on the keeper, CPU 0, the kernel's timer ticks instead. */
static void apic_timer_on(int cpu)
{
	pthread_t other;
	uint64_t before, ticks = info_of(device).ticks;
	int i;

	pin(cpu);
	ticking = true;
	done = false;
	seen = handled = 0;
	timer(HEDDLE_UINTR_TIMER_APIC, 0, 100000);
	while (handled < 1000)
		;
	/* The kernel has its clock: sleeps on this CPU end, and another thread has its share of it. */
	for (i = 0; i < 5; i++)
		usleep(1000);
	other = start(compute, NULL);
	while (seen < 100000)
		;
	done = true;
	join(other);
	before = handled;
	while (handled < before + 100)
		;
	EQUAL(info_of(device).ticks > ticks, cpu == 0);
	/* The keeper may not go away meanwhile. */
	if (cpus() > 1) {
		FILE *file = fopen("/sys/devices/system/cpu/cpu0/online", "w");

		if (file) {
			fputc('0', file);
			FAILS(fclose(file), EBUSY);
		}
	}
	ticking = false;
	timer(HEDDLE_UINTR_TIMER_OFF, 0, 0);
	usleep(1000);
	before = handled;
	usleep(20000);
	EQUAL(handled, before);
	EQUAL(wrong, 0);
	/* And others reach it again. */
	_senduipi(own);
	while (handled == before)
		;
}

static void apic_timer(void)
{
	own = connect_to(receive_with(on_tick), VECTOR);
	apic_timer_on(0);
	if (cpus() > 1)
		apic_timer_on(1);
}

/* Both CPUs at once, in programs that make no system calls: the kernel keeps both clocks. */
static void *ticks_alone(void *argument)
{
	_Atomic uint64_t mine = 0;

	pin((int)(uintptr_t)argument);
	connect_to(receive_with(on_tick), VECTOR);
	timer(HEDDLE_UINTR_TIMER_APIC, 0, 100000);
	sequence++;
	while (!done)
		mine++;
	return NULL;
}

static void apic_timers_everywhere(void)
{
	pthread_t threads[2] = { start(ticks_alone, (void *)0), start(ticks_alone, (void *)1) };
	uint64_t i;

	while (sequence < 2)
		usleep(1000);
	for (i = 0; i < 20; i++) {
		pin(i % 2);
		usleep(1000);
	}
	done = true;
	join(threads[0]);
	join(threads[1]);
}

/* Signals in the handler, and interrupts in a signal handler. */
static _Atomic uint64_t signals;

static void on_signal(int number)
{
	signals++;
	_senduipi(own);
}

static void on_signal_inside(int number)
{
	signals++;
	wrong += _testui();
}

static pid_t process_id, thread_id;

static __attribute__((interrupt, target("general-regs-only"))) void raises(struct frame *frame, uint64_t vector)
{
	handled++;
	asm volatile("syscall"
		     :
		     : "a"((uint64_t)SYS_tgkill), "D"((uint64_t)process_id), "S"((uint64_t)thread_id),
		       "d"((uint64_t)SIGUSR1)
		     : "rcx", "r11", "memory");
}

static void with_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	uint64_t i;

	EQUAL(sigaction(SIGUSR1, &action, NULL), 0);
	own = connect_to(receive(), VECTOR);
	for (i = 1; i <= sends; i++) {
		EQUAL(raise(SIGUSR1), 0);
		EQUAL(signals, i);
		await_own(&handled, i);
	}
	EQUAL(ioctl(device, HEDDLE_UINTR_UNREGISTER), 0);
	own = connect_to(receive_with(raises), VECTOR);
	process_id = getpid();
	thread_id = gettid();
	signals = handled = 0;
	action.sa_handler = on_signal_inside;
	EQUAL(sigaction(SIGUSR1, &action, NULL), 0);
	for (i = 1; i <= sends; i++) {
		_senduipi(own);
		await_own(&handled, i);
		await_own(&signals, i);
	}
	EQUAL(wrong, 0);
}

/* Two processes on one CPU, whose interrupts must not be mixed up. */
static void two_processes(void)
{
	int child, status;
	uint64_t i;
	uint32_t me;

	pin(0);
	child = fork();
	device = open_device();
	me = connect_to(receive(), VECTOR);
	for (i = 1; i <= sends; i++) {
		send_number(me, i);
		await_own(&seen, i);
		if (i % 16 == 0)
			sched_yield();
	}
	EQUAL(handled, sends);
	if (!child)
		_exit(0);
	EQUAL(waitpid(child, &status, 0), child);
	EQUAL(status, 0);
}

/* Ends of all kinds, with interrupts pending. The parent looks at what is left. */

static void *pending_thread(void *argument)
{
	uint32_t me = connect_to(receive(), VECTOR);

	_clui();
	_senduipi(me);
	target = me;
	ready = true;
	if (argument)
		pause();
	return NULL;
}

static void thread_exits(void)
{
	uint64_t i;

	send_only();
	for (i = 0; i < 300; i++) {
		ready = false;
		join(start(pending_thread, NULL));
		/* A target whose thread has gone takes sends for nothing. */
		_senduipi(target);
		EQUAL(ioctl(device, HEDDLE_UINTR_DISCONNECT, &target), 0);
	}
	EQUAL(handled, 0);
}

/* A thread that takes over from one that has ended has its targets, and nothing that was sent to it. */
static void takes_over(void)
{
	struct heddle_uintr_register what = { .flags = HEDDLE_UINTR_RECEIVE,
					      .handler = (uint64_t)handler,
					      .stack_adjust = RED_ZONE };

	join(start(pending_thread, NULL));
	what.receiver = 1;
	FAILS(ioctl(device, HEDDLE_UINTR_REGISTER, &what), ENOENT);
	what.receiver = 0;
	/* It can be joined before it is gone. */
	while (ioctl(device, HEDDLE_UINTR_REGISTER, &what)) {
		EQUAL(errno, EBUSY);
		sched_yield();
	}
	EQUAL(what.receiver, 0);
	usleep(1000);
	EQUAL(handled, 0);
	_senduipi(target);
	await_own(&handled, 1);
}

static void kill_9(void)
{
	int i, child, status;

	for (i = 0; i < 20; i++) {
		child = fork();
		if (!child) {
			device = open_device();
			start(pending_thread, device ? &device : NULL);
			await(&ready);
			pending_thread(NULL);
			timer(HEDDLE_UINTR_TIMER_HR, 0, 50000);
			kill(getpid(), SIGKILL);
		}
		EQUAL(waitpid(child, &status, 0), child);
		EQUAL(WTERMSIG(status), SIGKILL);
	}
}

static void across_exec(void)
{
	int child, status;

	child = fork();
	if (!child) {
		/* Without O_CLOEXEC, so that the program that follows has it and is refused. */
		int fd = open(HEDDLE_UINTR_DEVICE, O_RDWR);
		char name[16];

		device = fd;
		pending_thread(NULL);
		timer(HEDDLE_UINTR_TIMER_HR, 0, 50000);
		snprintf(name, sizeof(name), "%d", fd);
		execl("/proc/self/exe", "uintr", "--after-exec", name, NULL);
		_exit(1);
	}
	EQUAL(waitpid(child, &status, 0), child);
	EQUAL(status, 0);
}

static int after_exec(int fd)
{
	struct heddle_uintr_info info;
	volatile uint64_t i;

	/* Whatever was pending would be delivered here, at an address of the program before. */
	for (i = 0; i < 3000000; i++)
		;
	usleep(1000);
	FAILS(ioctl(fd, HEDDLE_UINTR_INFO, &info), ESTALE);
	device = open_device();
	EQUAL(info_of(device).threads, 0);
	self();
	return 0;
}

static void across_fork(void)
{
	uint32_t me = connect_to(receive(), VECTOR);
	struct heddle_uintr_info info;
	int child, status;

	_clui();
	_senduipi(me);
	child = fork();
	if (!child) {
		FAILS(ioctl(device, HEDDLE_UINTR_INFO, &info), ESTALE);
		_stui();
		usleep(1000);
		EQUAL(handled, 0);
		close(device);
		device = open_device();
		self();
		_exit(0);
	}
	EQUAL(waitpid(child, &status, 0), child);
	EQUAL(status, 0);
	EQUAL(handled, 0);
	_stui();
	await_own(&handled, 1);
}

/* What must not work. */

static void expect_signal(void (*body)(void), int number)
{
	int child = fork(), status;

	if (!child) {
		signal(number, SIG_DFL);
		device = open_device();
		body();
		_exit(0);
	}
	EQUAL(waitpid(child, &status, 0), child);
	HOLDS(WIFSIGNALED(status));
	EQUAL(WTERMSIG(status), number);
}

static void send_unregistered(void)
{
	_senduipi(0);
}

static void send_nowhere(void)
{
	receive();
	_senduipi(7);
}

static void send_beyond(void)
{
	receive();
	_senduipi(1 << 20);
}

static void send_disconnected(void)
{
	uint32_t me = connect_to(receive(), VECTOR);

	_senduipi(me);
	await_own(&handled, 1);
	EQUAL(ioctl(device, HEDDLE_UINTR_DISCONNECT, &me), 0);
	_senduipi(me);
}

static void refused(void)
{
	struct heddle_uintr_register what = { .flags = HEDDLE_UINTR_RECEIVE,
					      .receiver = NONE,
					      .handler = 1ULL << 63,
					      .stack_adjust = RED_ZONE };
	struct heddle_uintr_target to = {};
	struct heddle_uintr_timer clock = { .kind = HEDDLE_UINTR_TIMER_HR, .receiver = NONE, .period_ns = 1000000 };
	uint32_t index = 3, i;

	FAILS(ioctl(device, HEDDLE_UINTR_REGISTER, &what), EINVAL);
	what.handler = (uint64_t)handler;
	what.stack_adjust = 1ULL << 62;
	FAILS(ioctl(device, HEDDLE_UINTR_REGISTER, &what), EINVAL);
	what.stack_adjust = RED_ZONE;
	what.reserved[1] = 1;
	FAILS(ioctl(device, HEDDLE_UINTR_REGISTER, &what), EINVAL);
	what.reserved[1] = 0;
	what.flags = 8;
	FAILS(ioctl(device, HEDDLE_UINTR_REGISTER, &what), EINVAL);
	FAILS(ioctl(device, HEDDLE_UINTR_REGISTER, 8), EFAULT);
	FAILS(ioctl(device, HEDDLE_UINTR_UNREGISTER), ENOENT);
	FAILS(ioctl(device, HEDDLE_UINTR_CONNECT, &to), ENOENT);
	FAILS(ioctl(device, HEDDLE_UINTR_DISCONNECT, &index), ENOENT);
	FAILS(ioctl(device, HEDDLE_UINTR_TIMER, &clock), ENOENT);
	FAILS(ioctl(device, _IO(HEDDLE_UINTR_MAGIC, 99)), ENOTTY);
	FAILS(ioctl(device, TIOCGWINSZ, &what), ENOTTY);
	FAILS(ioctl(device, _IOC(_IOC_WRITE, HEDDLE_UINTR_MAGIC, 1, 8000), &what), ENOTTY);
	receive();
	what = (struct heddle_uintr_register){ .receiver = NONE };
	FAILS(ioctl(device, HEDDLE_UINTR_REGISTER, &what), EBUSY);
	to.vector = 64;
	FAILS(ioctl(device, HEDDLE_UINTR_CONNECT, &to), EINVAL);
	to = (struct heddle_uintr_target){ .receiver = 1 };
	FAILS(ioctl(device, HEDDLE_UINTR_CONNECT, &to), ENOENT);
	to.receiver = UINT32_MAX;
	FAILS(ioctl(device, HEDDLE_UINTR_CONNECT, &to), ENOENT);
	clock.period_ns = 10;
	FAILS(ioctl(device, HEDDLE_UINTR_TIMER, &clock), ERANGE);
	clock.kind = 9;
	FAILS(ioctl(device, HEDDLE_UINTR_TIMER, &clock), EINVAL);
	for (i = 0; i < 64; i++)
		EQUAL(connect_to(0, i), i);
	expect_signal(send_unregistered, SIGILL);
	expect_signal(send_nowhere, SIGSEGV);
	expect_signal(send_beyond, SIGSEGV);
	expect_signal(send_disconnected, SIGSEGV);
}

static sem_t may_end;

static void *waits(void *argument)
{
	struct heddle_uintr_register what = { .flags = HEDDLE_UINTR_RECEIVE,
					      .receiver = NONE,
					      .handler = (uint64_t)handler };
	int status = ioctl(device, HEDDLE_UINTR_REGISTER, &what);

	if (status)
		EQUAL(errno, EAGAIN);
	handled += !status;
	sequence++;
	return NULL + sem_wait(&may_end);
}

static void limits(void)
{
	pthread_t all[300];
	pthread_attr_t attributes;
	int i;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 65536);
	for (i = 0; i < 300; i++)
		EQUAL(pthread_create(&all[i], &attributes, waits, NULL), 0);
	while (sequence < 300)
		usleep(1000);
	/* A process has 256 receivers. */
	EQUAL(handled, 256);
	EQUAL(info_of(device).threads, 256);
	for (i = 0; i < 300; i++)
		EQUAL(sem_post(&may_end), 0);
	for (i = 0; i < 300; i++)
		join(all[i]);
	/* And their places are free again. */
	receive();
}

static void unprivileged(void)
{
	struct heddle_uintr_timer clock = {
		.kind = HEDDLE_UINTR_TIMER_APIC, .vector = 1, .receiver = NONE, .period_ns = 100000
	};

	EQUAL(setresgid(65534, 65534, 65534), 0);
	EQUAL(setresuid(65534, 65534, 65534), 0);
	close(device);
	device = open_device();
	self();
	FAILS(ioctl(device, HEDDLE_UINTR_TIMER, &clock), EPERM);
}

static void set_online(bool on)
{
	FILE *file = fopen("/sys/devices/system/cpu/cpu1/online", "w");

	HOLDS(file);
	fputc(on ? '1' : '0', file);
	EQUAL(fclose(file), 0);
}

static void hotplug(void)
{
	pthread_t thread;
	uint64_t i;

	receiver_cpu = 1;
	thread = start(receiver, (void *)YIELD);
	await(&ready);
	pin(0);
	send_only();
	for (i = 1; i <= 40; i++) {
		if (i % 10 == 5)
			set_online(i % 20 == 15);
		send_number(target, i);
		await_seen(i);
	}
	EQUAL(handled, 40);
	done = true;
	join(thread);
	/* A CPU that was off and on again has them. */
	pin(1);
	_senduipi(target);
}

static const struct test {
	const char *name;
	void (*body)(void);
	int cpus;
} tests[] = {
	{ "self", self, 1 },
	{ "held-off", held_off, 1 },
	{ "vectors", vectors, 1 },
	{ "cross", cross, 2 },
	{ "descheduled", descheduled, 1 },
	{ "in-system-call", in_system_call, 1 },
	{ "blocked", blocked, 1 },
	{ "migrating", migrating, 2 },
	{ "two-processes", two_processes, 1 },
	{ "hr-timer", hr_timer, 1 },
	{ "timer-of-another", timer_of_another, 1 },
	{ "apic-timer", apic_timer, 1 },
	{ "apic-timers-everywhere", apic_timers_everywhere, 2 },
	{ "with-signals", with_signals, 1 },
	{ "thread-exits", thread_exits, 1 },
	{ "takes-over", takes_over, 1 },
	{ "kill-9", kill_9, 1 },
	{ "exec", across_exec, 1 },
	{ "fork", across_fork, 1 },
	{ "refused", refused, 1 },
	{ "limits", limits, 1 },
	{ "unprivileged", unprivileged, 1 },
	{ "hotplug", hotplug, 2 },
};

/* Whether nothing is registered but what this process has open. Threads that were killed take a moment to end. */
static bool is_clean(void)
{
	int fd = open_device(), i;
	struct heddle_uintr_info info;

	for (i = 0; i < 1000; i++) {
		info = info_of(fd);
		if (!info.threads && info.processes == 1)
			break;
		usleep(10000);
	}
	close(fd);
	if (info.threads || info.processes != 1)
		printf("    left behind: %u threads, %u processes\n", info.threads, info.processes - 1);
	return !info.threads && info.processes == 1;
}

static bool run(const struct test *test)
{
	int child, status;

	fflush(stdout);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(LIMIT_S);
		device = open_device();
		test->body();
		exit(0);
	}
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		printf("    ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
	return is_clean() && !status;
}

/* Whether the case is named, or none is; a name after a minus leaves a case out. */
static bool is_wanted(const char *name, int count, char **names)
{
	bool all = true;
	int i;

	for (i = 0; i < count; i++) {
		if (names[i][0] == '-' && !strcmp(name, names[i] + 1))
			return false;
		if (!strcmp(name, names[i]))
			return true;
		all &= names[i][0] == '-';
	}
	return all;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int count, char **arguments)
{
	int failed = 0, passed = 0, skipped = 0;
	size_t i;

	if (count == 3 && !strcmp(arguments[1], "--after-exec"))
		return after_exec(atoi(arguments[2]));
	if (count > 1)
		sends = strtoull(arguments[1], NULL, 10);
	for (i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		const struct test *test = &tests[i];
		double began = now();

		if (!is_wanted(test->name, count - 2 > 0 ? count - 2 : 0, arguments + 2))
			continue;
		if (cpus() < test->cpus) {
			printf("skipped %s: needs %d CPUs\n", test->name, test->cpus);
			skipped++;
		} else if (run(test)) {
			printf("ok %s (%.1f s)\n", test->name, now() - began);
			passed++;
		} else {
			printf("FAILED %s\n", test->name);
			failed++;
		}
	}
	printf("%d passed, %d failed, %d skipped (%llu sends of a kind)\n", passed, failed, skipped,
	       (unsigned long long)sends);
	return failed > 0;
}
