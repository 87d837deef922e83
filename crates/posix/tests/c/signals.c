// Signals of threads: who handles what, masks, waits. Prints what failed; exits with 0 if nothing did.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failures;
#define CHECK(c) \
    do { \
        if (!(c)) { \
            printf("%s:%d: %s\n", __func__, __LINE__, #c); \
            failures++; \
        } \
    } while (0)

static atomic_int ready, stop, handled, in_handler;
static pthread_t handler_thread;
static int handler_code, handler_value;
static void *handler_address;

static void on_signal(int signal) {
    handler_thread = pthread_self();
    in_handler = signal;
    handled++;
}

static void on_info(int signal, siginfo_t *info, void *context) {
    handler_code = info->si_code;
    handler_value = info->si_value.sival_int;
    handler_address = info->si_addr;
    if (((ucontext_t *)context)->uc_mcontext.gregs[REG_RSP] == 0)
        abort();
    on_signal(signal);
}

static void install(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static void install_info(int signal, int flags) {
    struct sigaction action = {.sa_sigaction = on_info, .sa_flags = flags | SA_SIGINFO};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static void change(int how, int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    CHECK(pthread_sigmask(how, &set, NULL) == 0);
}

static int is_blocked(int signal) {
    sigset_t set;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    return sigismember(&set, signal);
}

static int is_pending(int signal) {
    sigset_t set;
    sigpending(&set);
    return sigismember(&set, signal);
}

static void nap(void) {
    struct timespec time = {0, 20000000};
    while (nanosleep(&time, &time) != 0)
        ;
}

static void until(atomic_int *what, int value) {
    while (*what < value)
        sched_yield();
}

static void *run(void *(*f)(void *), void *argument) {
    pthread_t thread;
    void *result = NULL;
    CHECK(pthread_create(&thread, NULL, f, argument) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    return result;
}

// --- To oneself

static void *to_self(void *unused) {
    handled = 0;
    CHECK(raise(SIGUSR1) == 0);
    CHECK(handled == 1 && pthread_equal(handler_thread, pthread_self()));
    CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
    CHECK(handled == 2);
    CHECK(pthread_kill(pthread_self(), 0) == 0);
    CHECK(pthread_kill(pthread_self(), 1000) == EINVAL);
    // Blocked: pending until unblocked, and merged.
    change(SIG_BLOCK, SIGUSR1);
    CHECK(is_blocked(SIGUSR1) && !is_pending(SIGUSR1));
    raise(SIGUSR1);
    raise(SIGUSR1);
    CHECK(handled == 2 && is_pending(SIGUSR1));
    change(SIG_UNBLOCK, SIGUSR1);
    CHECK(handled == 3 && !is_pending(SIGUSR1) && !is_blocked(SIGUSR1));
    // The process; no other thread is certain to take it: any thread may.
    CHECK(kill(getpid(), SIGUSR1) == 0);
    until(&handled, 4);
    CHECK(handled == 4);
    return NULL;
}

static void on_nested(int signal) {
    CHECK(is_blocked(SIGUSR2));
    CHECK(is_blocked(SIGUSR1));
    on_signal(signal);
}

static void on_nodefer(int signal) {
    CHECK(!is_blocked(SIGUSR2));
    on_signal(signal);
}

static void *masks(void *unused) {
    struct sigaction action = {.sa_handler = on_nested};
    sigaddset(&action.sa_mask, SIGUSR1);
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    handled = 0;
    raise(SIGUSR2);
    CHECK(handled == 1 && !is_blocked(SIGUSR2) && !is_blocked(SIGUSR1));
    install(SIGUSR2, on_nodefer, SA_NODEFER);
    raise(SIGUSR2);
    CHECK(handled == 2);
    install(SIGUSR2, on_signal, SA_RESETHAND);
    raise(SIGUSR2);
    CHECK(handled == 3);
    struct sigaction now;
    sigaction(SIGUSR2, NULL, &now);
    CHECK(now.sa_handler == SIG_DFL);
    signal(SIGUSR2, SIG_IGN);
    raise(SIGUSR2);
    CHECK(handled == 3);
    CHECK(signal(SIGUSR2, on_signal) == SIG_IGN);
    CHECK(signal(SIGUSR2, SIG_DFL) == on_signal);
    CHECK(signal(SIGKILL, SIG_IGN) == SIG_ERR && errno == EINVAL);
    return NULL;
}

static void *inherits(void *unused) {
    CHECK(is_blocked(SIGUSR1) && !is_blocked(SIGUSR2));
    CHECK(!is_pending(SIGUSR1));
    return NULL;
}

static void *inherits_from_task(void *unused) {
    change(SIG_BLOCK, SIGUSR1);
    raise(SIGUSR1);
    run(inherits, NULL);
    signal(SIGUSR1, SIG_IGN);
    CHECK(!is_pending(SIGUSR1));
    install(SIGUSR1, on_signal, SA_RESTART);
    return NULL;
}

// --- To others

static void *computes(void *unused) {
    volatile unsigned long x = 0;
    ready = 1;
    while (!stop)
        x++;
    return NULL;
}

static void to_a_computing_thread(void) {
    pthread_t thread;
    ready = stop = handled = 0;
    pthread_create(&thread, NULL, computes, NULL);
    until(&ready, 1);
    for (int i = 1; i <= 20; i++) {
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        until(&handled, i);
        CHECK(pthread_equal(handler_thread, thread));
    }
    stop = 1;
    pthread_join(thread, NULL);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t sem;
static int ends[2];

static void *waits_for_mutex(void *unused) {
    ready = 1;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void *waits_for_cond(void *unused) {
    pthread_mutex_lock(&mutex);
    ready = 1;
    while (!stop)
        CHECK(pthread_cond_wait(&cond, &mutex) == 0);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void *waits_for_sem(void *unused) {
    ready = 1;
    int result;
    while ((result = sem_wait(&sem)) != 0 && stop == 0)
        ;
    return result == 0 ? NULL : (void *)(intptr_t)errno;
}

static void *waits_for_sem_once(void *unused) {
    ready = 1;
    return sem_wait(&sem) == 0 ? NULL : (void *)(intptr_t)errno;
}

static void *reads_once(void *unused) {
    char byte;
    ready = 1;
    return read(ends[0], &byte, 1) == 1 ? NULL : (void *)(intptr_t)errno;
}

static void *sleeps(void *unused) {
    struct timespec time = {1000, 0}, rest = {0, 0};
    ready = 1;
    int result = nanosleep(&time, &rest);
    CHECK(result != 0 && rest.tv_sec > 900);
    return result == 0 ? NULL : (void *)(intptr_t)errno;
}

static void *polls(void *unused) {
    struct pollfd fd = {ends[0], POLLIN, 0};
    ready = 1;
    return poll(&fd, 1, 1000000) >= 0 ? NULL : (void *)(intptr_t)errno;
}

static void *suspends(void *unused) {
    sigset_t none;
    sigemptyset(&none);
    change(SIG_BLOCK, SIGUSR1);
    ready = 1;
    int result = sigsuspend(&none);
    CHECK(is_blocked(SIGUSR1));
    return result == 0 ? NULL : (void *)(intptr_t)errno;
}

static void *pauses(void *unused) {
    ready = 1;
    return pause() == 0 ? NULL : (void *)(intptr_t)errno;
}

// Sends a signal to a thread in `f` until it has handled it `times`, and returns the thread.
static pthread_t interrupted(void *(*f)(void *), int times) {
    pthread_t thread;
    ready = stop = handled = 0;
    pthread_create(&thread, NULL, f, NULL);
    until(&ready, 1);
    nap();
    for (int i = 1; i <= times; i++) {
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        until(&handled, i);
        CHECK(pthread_equal(handler_thread, thread));
        nap();
    }
    return thread;
}

static intptr_t joined(pthread_t thread) {
    void *result;
    CHECK(pthread_join(thread, &result) == 0);
    return (intptr_t)result;
}

static void to_waiting_threads(void) {
    install(SIGUSR1, on_signal, SA_RESTART);
    pthread_mutex_lock(&mutex);
    pthread_t thread = interrupted(waits_for_mutex, 3);
    pthread_mutex_unlock(&mutex);
    CHECK(joined(thread) == 0);

    thread = interrupted(waits_for_cond, 3);
    pthread_mutex_lock(&mutex);
    stop = 1;
    pthread_cond_signal(&cond);
    pthread_mutex_unlock(&mutex);
    CHECK(joined(thread) == 0);

    thread = interrupted(waits_for_sem_once, 3);
    sem_post(&sem);
    CHECK(joined(thread) == 0);

    thread = interrupted(reads_once, 3);
    CHECK(write(ends[1], "x", 1) == 1);
    CHECK(joined(thread) == 0);

    CHECK(joined(interrupted(sleeps, 1)) == EINTR);
    CHECK(joined(interrupted(polls, 1)) == EINTR);
    CHECK(joined(interrupted(suspends, 1)) == EINTR);
    CHECK(joined(interrupted(pauses, 1)) == EINTR);

    install(SIGUSR1, on_signal, 0);
    CHECK(joined(interrupted(waits_for_sem_once, 1)) == EINTR);
    CHECK(joined(interrupted(reads_once, 1)) == EINTR);
    thread = interrupted(waits_for_sem, 3);
    sem_post(&sem);
    CHECK(joined(thread) == 0);
    install(SIGUSR1, on_signal, SA_RESTART);
}

// --- For the process

static void *takes_for_process(void *unused) {
    change(SIG_UNBLOCK, SIGUSR1);
    ready = 1;
    volatile unsigned long x = 0;
    while (!stop)
        x++;
    return NULL;
}

static void to_the_process(void) {
    pthread_t thread;
    ready = stop = handled = 0;
    change(SIG_BLOCK, SIGUSR1);
    kill(getpid(), SIGUSR1);
    while (!is_pending(SIGUSR1))
        sched_yield();
    CHECK(handled == 0);
    pthread_create(&thread, NULL, takes_for_process, NULL);
    until(&ready, 1);
    until(&handled, 1);
    CHECK(pthread_equal(handler_thread, thread));
    for (int i = 2; i < 10; i++) {
        kill(getpid(), SIGUSR1);
        until(&handled, i);
        CHECK(pthread_equal(handler_thread, thread));
    }
    stop = 1;
    pthread_join(thread, NULL);
    // No thread accepts it now.
    kill(getpid(), SIGUSR1);
    nap();
    CHECK(is_pending(SIGUSR1));
    change(SIG_UNBLOCK, SIGUSR1);
    CHECK(handled == 10 && pthread_equal(handler_thread, pthread_self()));
}

static void *alarmed(void *unused) {
    handled = 0;
    ualarm(10000, 0);
    until(&handled, 1);
    struct itimerval timer = {{0, 5000}, {0, 5000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    until(&handled, 5);
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    CHECK(in_handler == SIGALRM);
    return NULL;
}

static void *waits_for_signal(void *unused) {
    sigset_t set;
    int signal = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGTERM);
    ready = 1;
    CHECK(sigwait(&set, &signal) == 0);
    return (void *)(intptr_t)signal;
}

static void *waits_with_info(void *unused) {
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    struct timespec time = {0, 10000000};
    CHECK(sigtimedwait(&set, &info, &time) == -1 && errno == EAGAIN);
    union sigval value = {.sival_int = 41};
    sigqueue(getpid(), SIGRTMIN + 1, value);
    value.sival_int = 42;
    sigqueue(getpid(), SIGRTMIN + 1, value);
    value.sival_int = 43;
    pthread_sigqueue(pthread_self(), SIGRTMIN + 1, value);
    int sum = 0;
    for (int i = 0; i < 3; i++) {
        CHECK(sigwaitinfo(&set, &info) == SIGRTMIN + 1);
        CHECK(info.si_code == SI_QUEUE && info.si_pid == getpid());
        sum += info.si_value.sival_int;
    }
    CHECK(sum == 41 + 42 + 43);
    CHECK(sigtimedwait(&set, &info, &time) == -1 && errno == EAGAIN);
    return NULL;
}

static void sigwaits(void) {
    change(SIG_BLOCK, SIGUSR2);
    change(SIG_BLOCK, SIGTERM);
    change(SIG_BLOCK, SIGRTMIN + 1);
    pthread_t thread;
    for (int i = 0; i < 4; i++) {
        ready = 0;
        pthread_create(&thread, NULL, waits_for_signal, NULL);
        until(&ready, 1);
        if (i % 2)
            nap();
        if (i < 2)
            CHECK(pthread_kill(thread, SIGUSR2) == 0);
        else
            kill(getpid(), SIGTERM);
        CHECK(joined(thread) == (i < 2 ? SIGUSR2 : SIGTERM));
    }
    run(waits_with_info, NULL);
    // In the first thread, while others run.
    ready = stop = 0;
    pthread_create(&thread, NULL, computes, NULL);
    sigset_t set;
    int signal = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    kill(getpid(), SIGTERM);
    CHECK(sigwait(&set, &signal) == 0 && signal == SIGTERM);
    stop = 1;
    pthread_join(thread, NULL);
    change(SIG_UNBLOCK, SIGUSR2);
    change(SIG_UNBLOCK, SIGTERM);
    change(SIG_UNBLOCK, SIGRTMIN + 1);
}

static void *queues(void *unused) {
    install_info(SIGRTMIN + 2, 0);
    handled = 0;
    change(SIG_BLOCK, SIGRTMIN + 2);
    for (int i = 0; i < 5; i++) {
        union sigval value = {.sival_int = i};
        CHECK(pthread_sigqueue(pthread_self(), SIGRTMIN + 2, value) == 0);
    }
    change(SIG_UNBLOCK, SIGRTMIN + 2);
    CHECK(handled == 5 && handler_value == 4 && handler_code == SI_QUEUE);
    return NULL;
}

// --- Faults and jumps

static __thread sigjmp_buf back;
static char *page;

static void on_fault(int signal, siginfo_t *info, void *context) {
    on_info(signal, info, context);
    siglongjmp(back, signal);
}

static void *faults(void *unused) {
    for (int i = 0; i < 200; i++) {
        handled = 0;
        int signal = sigsetjmp(back, 1);
        if (signal == 0) {
            page[i] = 1;
            CHECK(!"reached");
        }
        CHECK(signal == SIGSEGV && !is_blocked(SIGSEGV) && handler_address == page + i);
        if (i % 50 == 0)
            sched_yield();
    }
    volatile int zero = 0, seven = 7;
    int signal = sigsetjmp(back, 1);
    if (signal == 0) {
        zero = seven / zero;
        CHECK(!"reached");
    }
    CHECK(signal == SIGFPE && !is_blocked(SIGFPE));
    return NULL;
}

static void on_repaired(int signal, siginfo_t *info, void *context) {
    on_info(signal, info, context);
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    sched_yield();
}

static void *repairs(void *unused) {
    double sum = 0.5;
    for (int i = 0; i < 100; i++) {
        mprotect(page, 4096, PROT_NONE);
        handled = 0;
        page[i] = (char)i;
        CHECK(handled == 1 && page[i] == (char)i);
        sum += i;
    }
    CHECK(sum == 4950.5);
    return NULL;
}

static void on_stack_of_its_own(int signal) {
    stack_t now;
    CHECK(sigaltstack(NULL, &now) == 0);
    char *here = (char *)&now;
    CHECK(here >= (char *)now.ss_sp && here < (char *)now.ss_sp + now.ss_size);
    CHECK(now.ss_flags == SS_ONSTACK);
    on_signal(signal);
    sched_yield();
}

static void *on_altstack(void *unused) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536}, old;
    CHECK(sigaltstack(&stack, &old) == 0 && old.ss_flags == SS_DISABLE);
    install(SIGUSR2, on_stack_of_its_own, SA_ONSTACK);
    handled = 0;
    raise(SIGUSR2);
    CHECK(handled == 1);
    install(SIGBUS, on_stack_of_its_own, SA_ONSTACK);
    CHECK(sigaltstack(NULL, &old) == 0 && old.ss_sp == stack.ss_sp && old.ss_flags == 0);
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, NULL) == 0);
    free(old.ss_sp);
    signal(SIGBUS, SIG_DFL);
    signal(SIGUSR2, SIG_DFL);
    return NULL;
}

#pragma GCC diagnostic ignored "-Winfinite-recursion"
/* Not inlined into itself: a frame larger than the guard would step over it. */
__attribute__((noinline, noclone)) static int depth(int n) {
    volatile char room[4096];
    memset((char *)room, n, sizeof room);
    return depth(n + 1) + room[7];
}

static void *overflows(void *unused) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, NULL);
    handled = 0;
    if (sigsetjmp(back, 1) == 0)
        depth(0);
    CHECK(handled == 1);
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, NULL) == 0);
    free(stack.ss_sp);
    return NULL;
}

static void *jumps(void *unused) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR2, &action, NULL);
    volatile int rounds = 0;
    if (sigsetjmp(back, 1) == 0 || ++rounds < 10)
        raise(SIGUSR2);
    CHECK(rounds == 10 && !is_blocked(SIGUSR2));
    if (sigsetjmp(back, 0) == 0)
        raise(SIGUSR2);
    CHECK(is_blocked(SIGUSR2));
    change(SIG_UNBLOCK, SIGUSR2);
    signal(SIGUSR2, SIG_DFL);
    return NULL;
}

static void *storm_target(void *unused) {
    volatile double x = 1.5;
    char text[64];
    long sum = 0;
    while (!stop) {
        x = x * 1.0000001;
        sum += snprintf(text, sizeof text, "%g", x);
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
        free(malloc(100));
    }
    return (void *)(intptr_t)(sum > 0);
}

static void storm(void) {
    pthread_t threads[4];
    stop = handled = 0;
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, storm_target, NULL);
    for (int i = 0; i < 2000; i++)
        pthread_kill(threads[i % 4], SIGUSR1);
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK(handled > 0);
}

// A signal of another process that no thread accepts when it comes: who sent it is known when one does.

static _Atomic pid_t sender;

static void on_sent(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    sender = info->si_pid;
}

static void *accepts(void *arg) {
    (void)arg;
    change(SIG_UNBLOCK, SIGUSR2);
    return NULL;
}

static pid_t send_from_child(void) {
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        kill(parent, SIGUSR2);
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    return child;
}

static void *takes(void *arg) {
    siginfo_t info;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    CHECK(sigwaitinfo(&set, &info) == SIGUSR2 && info.si_pid == *(pid_t *)arg);
    return NULL;
}

static void senders(void) {
    struct sigaction action = {.sa_sigaction = on_sent, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR2, &action, NULL);
    change(SIG_BLOCK, SIGUSR2);
    for (int round = 0; round < 6; round++) {
        // Signals of this kind may be received for a thread that is no more.
        run(accepts, NULL);
        pid_t child = send_from_child();
        usleep(5000);
        if (round % 3 == 0) {
            sender = 0;
            change(SIG_UNBLOCK, SIGUSR2);
            while (!sender) usleep(1000);
            CHECK(sender == child);
            change(SIG_BLOCK, SIGUSR2);
        } else if (round % 3 == 1) {
            run(takes, &child);
        } else {
            takes(&child);
        }
    }
    change(SIG_UNBLOCK, SIGUSR2);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    sem_init(&sem, 0, 0);
    CHECK(pipe(ends) == 0);
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    install(SIGUSR1, on_signal, SA_RESTART);
    install(SIGALRM, on_signal, SA_RESTART);
    run(to_self, NULL);
    run(masks, NULL);
    change(SIG_BLOCK, SIGUSR1);
    run(inherits, NULL);
    change(SIG_UNBLOCK, SIGUSR1);
    run(inherits_from_task, NULL);
    to_a_computing_thread();
    to_waiting_threads();
    to_the_process();
    run(alarmed, NULL);
    alarmed(NULL);
    sigwaits();
    run(queues, NULL);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGFPE, &action, NULL);
    run(faults, NULL);
    action.sa_flags |= SA_ONSTACK;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGFPE, &action, NULL);
    run(faults, NULL);
    run(overflows, NULL);
    action.sa_sigaction = on_repaired;
    sigaction(SIGSEGV, &action, NULL);
    run(repairs, NULL);
    run(on_altstack, NULL);
    run(jumps, NULL);
    storm();
    senders();
    return failures != 0;
}
