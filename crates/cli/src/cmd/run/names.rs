//! Names of the C library that act on threads or may block: what becomes of a program that uses them without the
//! library's versions.

use serde::Serialize;

/// What a name does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Makes, joins or ends threads, or keeps values for them.
    Threads,
    /// Waits for other threads, or wakes them.
    Waiting,
    /// May wait in the kernel.
    Blocking,
    /// Signals, and who gets them.
    Signals,
    /// Asks for a thread's number, CPUs, priority or clock.
    Identity,
    /// Makes processes.
    Processes,
}

impl Kind {
    /// Returns what follows if a name of this kind goes to the C library.
    pub fn consequence(self) -> &'static str {
        match self {
            Kind::Threads => "acts on kernel threads, not on tasks",
            Kind::Waiting => "its waits are the kernel's, and hold a CPU until the runtime notices",
            Kind::Blocking => "may hold a CPU until the runtime notices",
            Kind::Signals => "acts on the worker's kernel thread, not on the task",
            Kind::Identity => "answers for the worker's kernel thread, not for the task",
            Kind::Processes => "the child may start with the worker's state",
        }
    }
}

/// Returns the kind of `name`, if it matters to a scheduler of threads. Names that are right as they are
/// (attributes, `pthread_self`, `pthread_getspecific`, cleanup handlers) are of none.
pub fn kind(name: &str) -> Option<Kind> {
    let listed = |names: &str| names.split_whitespace().any(|listed| listed == name);
    NAMES.iter().find(|(_, names)| listed(names)).map(|(kind, _)| *kind)
}

const NAMES: [(Kind, &str); 6] = [
    (
        Kind::Threads,
        "pthread_create pthread_join pthread_tryjoin_np pthread_timedjoin_np pthread_clockjoin_np pthread_detach
        pthread_exit pthread_cancel pthread_testcancel pthread_setcancelstate pthread_setcanceltype pthread_once
        pthread_key_create __pthread_key_create pthread_key_delete pthread_getattr_np pthread_atfork
        thrd_create thrd_join thrd_detach thrd_exit call_once tss_create tss_delete clone",
    ),
    (
        Kind::Waiting,
        "pthread_mutex_init pthread_mutex_destroy pthread_mutex_lock pthread_mutex_trylock pthread_mutex_timedlock
        pthread_mutex_clocklock pthread_mutex_unlock pthread_mutex_consistent pthread_mutex_consistent_np
        pthread_mutex_getprioceiling pthread_mutex_setprioceiling __pthread_mutex_lock __pthread_mutex_trylock
        __pthread_mutex_unlock pthread_cond_init pthread_cond_destroy pthread_cond_wait pthread_cond_timedwait
        pthread_cond_clockwait pthread_cond_signal pthread_cond_broadcast
        pthread_rwlock_init pthread_rwlock_destroy pthread_rwlock_rdlock pthread_rwlock_tryrdlock
        pthread_rwlock_timedrdlock pthread_rwlock_clockrdlock pthread_rwlock_wrlock pthread_rwlock_trywrlock
        pthread_rwlock_timedwrlock pthread_rwlock_clockwrlock pthread_rwlock_unlock
        pthread_barrier_init pthread_barrier_destroy pthread_barrier_wait
        pthread_spin_init pthread_spin_destroy pthread_spin_lock pthread_spin_trylock pthread_spin_unlock
        sem_init sem_destroy sem_wait sem_trywait sem_timedwait sem_clockwait sem_post sem_getvalue sem_open sem_close
        mtx_init mtx_destroy mtx_lock mtx_timedlock mtx_trylock mtx_unlock
        cnd_init cnd_destroy cnd_wait cnd_timedwait cnd_signal cnd_broadcast
        sched_yield pthread_yield thrd_yield syscall",
    ),
    (
        Kind::Blocking,
        "nanosleep clock_nanosleep usleep sleep thrd_sleep poll ppoll __poll_chk __ppoll_chk select pselect epoll_wait
        epoll_pwait epoll_pwait2 read readv recv recvfrom recvmsg recvmmsg __read_chk __recv_chk __recvfrom_chk
        write writev send sendto sendmsg sendmmsg accept accept4 connect
        pread pread64 preadv preadv64 preadv2 preadv64v2 __pread_chk __pread64_chk
        pwrite pwrite64 pwritev pwritev64 pwritev2 pwritev64v2
        fsync fdatasync sync syncfs msync sync_file_range fallocate fallocate64 posix_fallocate posix_fallocate64
        ftruncate ftruncate64 sendfile sendfile64 splice tee vmsplice copy_file_range tcdrain
        flock lockf lockf64 fcntl fcntl64 open open64 openat openat64 creat creat64
        msgrcv msgsnd semop semtimedop mq_receive mq_send mq_timedreceive mq_timedsend
        io_getevents io_pgetevents __io_uring_get_cqe aio_suspend aio_suspend64 lio_listio lio_listio64
        getaddrinfo getnameinfo gethostbyname gethostbyname2 gethostbyname_r gethostbyname2_r gethostbyaddr
        gethostbyaddr_r getpwnam_r getpwuid_r getgrnam_r getgrgid_r res_query res_search dlopen dlmopen
        wait wait3 wait4 waitid waitpid system popen pclose",
    ),
    (
        Kind::Signals,
        "pthread_kill pthread_sigqueue pthread_sigmask raise tgkill sigaction signal sysv_signal __sysv_signal
        bsd_signal siginterrupt sigprocmask sigpending sigsuspend pause sigwait sigwaitinfo sigtimedwait signalfd
        sigaltstack __sigsetjmp siglongjmp __longjmp_chk getcontext setcontext swapcontext timer_create",
    ),
    (
        Kind::Identity,
        "gettid clock_gettime clock_getres pthread_getcpuclockid getrusage pthread_setname_np pthread_getname_np prctl
        pthread_setaffinity_np pthread_getaffinity_np sched_setaffinity sched_getaffinity
        pthread_setschedparam pthread_getschedparam pthread_setschedprio sched_setscheduler sched_getscheduler
        sched_setparam sched_getparam setpriority getpriority nice ioprio_set unshare setns capset setfsuid setfsgid",
    ),
    (
        Kind::Processes,
        "fork __fork vfork _Fork posix_spawn posix_spawnp pidfd_spawn pidfd_spawnp execl execle execlp execv execve
        execveat execvp execvpe fexecve",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_is_listed_once() {
        let names: Vec<&str> =
            NAMES.iter().flat_map(|(_, names)| names.split_whitespace()).collect();
        let distinct: BTreeSet<&&str> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert_eq!(kind("sem_timedwait"), Some(Kind::Waiting));
        for right in ["pthread_self", "pthread_attr_init", "pthread_getspecific", "printf", ""] {
            assert_eq!(kind(right), None, "{right}");
        }
    }
}
