// Processes made by threads. Prints what failed; exits with 0 if nothing did.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failures;
#define CHECK(c) \
    do { \
        if (!(c)) { \
            printf("%d: %s:%d: %s (errno %d)\n", (int)getpid(), __func__, __LINE__, #c, errno); \
            failures++; \
        } \
    } while (0)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int stop, handled, prepared, parents, children;
extern char **environ;

static void on_signal(int signal) { handled++; }
static void prepare(void) { prepared++; }
static void parent(void) { parents++; }

// Each process counts its own failures.
static void child(void) {
    children++;
    failures = 0;
}

static void *run(void *(*f)(void *), void *argument) {
    pthread_t thread;
    void *result = NULL;
    CHECK(pthread_create(&thread, NULL, f, argument) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    return result;
}

static int ended(pid_t process) {
    int status = -1;
    CHECK(process > 0);
    CHECK(waitpid(process, &status, 0) == process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void *adds(void *to) {
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        ++*(int *)to;
        pthread_mutex_unlock(&mutex);
        if (i % 100 == 0)
            sched_yield();
    }
    free(malloc(1000));
    return to;
}

static void child_with_threads(void) {
    pthread_t threads[8];
    int sum = 0;
    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&threads[i], NULL, adds, &sum) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(sum == 8000);
    handled = 0;
    raise(SIGUSR1);
    CHECK(handled == 1);
    pthread_kill(pthread_self(), SIGUSR1);
    CHECK(handled == 2);
    kill(getpid(), SIGUSR1);
    CHECK(handled == 3);
}

static void *forks(void *deep) {
    for (int i = 0; i < 5; i++) {
        int before = prepared, children_before = children;
        pid_t process = fork();
        if (process == 0) {
            CHECK(children == children_before + 1);
            _exit(failures ? 99 : i);
        }
        CHECK(prepared == before + 1);
        CHECK(ended(process) == i);
    }
    pid_t process = fork();
    if (process == 0) {
        CHECK(getpid() != getppid());
        child_with_threads();
        if (deep) {
            pid_t more = fork();
            if (more == 0) {
                child_with_threads();
                exit(failures ? 99 : 5);
            }
            CHECK(ended(more) == 5);
            run(forks, NULL);
        }
        exit(failures ? 99 : 6);
    }
    CHECK(ended(process) == 6);
    process = fork();
    if (process == 0) {
        execl("/bin/sh", "sh", "-c", "exit $1", "sh", "7", NULL);
        _exit(98);
    }
    CHECK(ended(process) == 7);
    process = vfork();
    if (process == 0) {
        char *environment[] = {"VALUE=8", NULL};
        execle("/bin/sh", "sh", "-c", "exit $VALUE", NULL, environment);
        _exit(98);
    }
    CHECK(ended(process) == 8);
    process = fork();
    if (process == 0) {
        char *arguments[] = {"sh", "-c", "kill -TERM $$", NULL};
        execvp("sh", arguments);
        _exit(98);
    }
    CHECK(ended(process) == 1000 + SIGTERM);
    return NULL;
}

// The child's only thread returns from its start routine.
static void *forks_and_returns(void *process) {
    *(pid_t *)process = fork();
    return NULL;
}

static void *leaves_in_child(void *process) {
    *(pid_t *)process = fork();
    if (*(pid_t *)process == 0)
        pthread_exit(NULL);
    return NULL;
}

static void *spawns(void *unused) {
    char line[100] = "";
    CHECK(system("exit 3") == 3 << 8);
    FILE *stream = popen("echo hello", "r");
    CHECK(stream != NULL && fgets(line, sizeof line, stream) != NULL);
    CHECK(strcmp(line, "hello\n") == 0 && pclose(stream) == 0);
    pid_t process;
    char *arguments[] = {"sh", "-c", "exit 9", NULL};
    CHECK(posix_spawn(&process, "/bin/sh", NULL, NULL, arguments, environ) == 0);
    CHECK(ended(process) == 9);
    CHECK(posix_spawnp(&process, "sh", NULL, NULL, arguments, environ) == 0);
    siginfo_t info;
    CHECK(waitid(P_PID, process, &info, WEXITED) == 0 && info.si_status == 9);
    CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    return NULL;
}

// What a program that a thread starts inherits: the thread's mask, and all CPUs.
static void *inherited(void *unused) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    // Not by a shell, which may clear its mask.
    char *arguments[] = {"grep", "-q", "SigBlk:.0*800$", "/proc/self/status", NULL};
    pid_t process;
    CHECK(posix_spawnp(&process, "grep", NULL, NULL, arguments, environ) == 0);
    CHECK(ended(process) == 0);
    process = fork();
    if (process == 0) {
        cpu_set_t cpus;
        sigset_t now;
        sched_getaffinity(0, sizeof cpus, &cpus);
        CHECK(CPU_COUNT(&cpus) == sysconf(_SC_NPROCESSORS_ONLN));
        sigprocmask(SIG_BLOCK, NULL, &now);
        CHECK(sigismember(&now, SIGUSR2) && !sigismember(&now, SIGUSR1));
        execlp("grep", "grep", "-q", "SigBlk:.0*800$", "/proc/self/status", NULL);
        _exit(98);
    }
    CHECK(ended(process) == 0);
    return NULL;
}

static void *busy(void *unused) {
    void *memory[16] = {0};
    for (int i = 0; !stop; i++) {
        free(memory[i % 16]);
        memory[i % 16] = malloc(64 + i % 1000);
        if (i % 64 == 0)
            run((void *(*)(void *))adds, &(int){0});
    }
    for (int i = 0; i < 16; i++)
        free(memory[i]);
    return NULL;
}

static void *forks_while_busy(void *unused) {
    for (int i = 0; i < 20; i++) {
        pid_t process = fork();
        if (process == 0) {
            free(malloc(100000));
            // Its own lock: another thread may hold the shared one.
            pthread_mutex_init(&mutex, NULL);
            if (i % 4 == 0)
                child_with_threads();
            _exit(failures ? 99 : 11);
        }
        CHECK(ended(process) == 11);
    }
    return NULL;
}

// Sleeps by a system call that the library does not see: the thread takes its worker out of the runtime.
static void sleep_unseen(long ms) {
    struct timespec time = {0, ms * 1000000};
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_nanosleep), "D"(&time), "S"(0) : "rcx", "r11", "memory");
}

// A child that is to die with its parent dies with the kernel thread that made it.
static void *child_stays(void *argument) {
    int is_ready[2];
    char byte;
    CHECK(pipe(is_ready) == 0);
    pid_t process = fork();
    if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        byte = write(is_ready[1], "x", 1);
        for (;;)
            pause();
    }
    CHECK(read(is_ready[0], &byte, 1) == 1);
    for (int i = 0; i < 3; i++)
        sleep_unseen(30);
    usleep(300000);
    CHECK(waitpid(process, NULL, WNOHANG) == 0);
    CHECK(kill(process, SIGKILL) == 0 && waitpid(process, NULL, 0) == process);
    close(is_ready[0]), close(is_ready[1]);
    return argument;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    signal(SIGUSR1, on_signal);
    pthread_atfork(prepare, parent, child);
    // Before there is a thread, in a thread, and in the first thread with others around.
    pid_t process = fork();
    if (process == 0) {
        child_with_threads();
        exit(failures ? 99 : 6);
    }
    CHECK(ended(process) == 6);
    run(forks, &stop);
    forks(&stop);
    run(spawns, NULL);
    spawns(NULL);
    run(inherited, NULL);
    run(forks_and_returns, &process);
    if (process == 0)
        _exit(97);
    CHECK(ended(process) == 0);
    run(leaves_in_child, &process);
    CHECK(ended(process) == 0);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, busy, NULL);
    run(forks_while_busy, NULL);
    forks_while_busy(NULL);
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    pthread_t many[8];
    for (int i = 0; i < 8; i++)
        pthread_create(&many[i], NULL, child_stays, NULL);
    for (int i = 0; i < 8; i++)
        pthread_join(many[i], NULL);
    return failures != 0;
}
