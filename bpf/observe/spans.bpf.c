/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Requests of unmodified servers, found at their sockets.
 *
 * A request begins when a thread reads from a watched socket whose last request is answered, and is answered by each
 * write until then. It is reported at the next request, when the server closes, or by user space at the end of a
 * window, which finds it in the table.
 *
 * A thread has a turn: the request that it works on. What it does between two marks (a read, a write) is added to the
 * turn's request while that is not answered. A thread that sleeps where it would wait for any request (epoll) keeps its
 * turn, but what follows counts only if it answers that request next. A thread that wakes another of its process from a
 * futex, or by a pipe or an eventfd, passes its turn on: the thread that answers had it. */
#include "include/spans.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ob_control);
} control SEC(".maps");

/* Which ports are watched: OB_TCP, OB_UDP. */
struct ob_ports {
	__u8 of[64];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct ob_ports);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} processes SEC(".maps");

/* enum ob_why of each system call, from user space, which has their numbers by name. */
struct ob_reasons {
	__u8 of[OB_SYSCALLS];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ob_reasons);
} reasons SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OB_SOCKET_SETS);
	__type(key, __u32);
	__type(value, struct ob_set);
} socket_keys SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OB_SOCKET_SETS *OB_WAYS);
	__type(key, __u32);
	__type(value, struct ob_socket);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OB_THREAD_SETS);
	__type(key, __u32);
	__type(value, struct ob_set);
} thread_keys SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OB_THREAD_SETS *OB_WAYS);
	__type(key, __u32);
	__type(value, struct ob_thread);
} threads SEC(".maps");

/* Entry 0 only counts those in use. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OB_QUEUES);
	__type(key, __u32);
	__type(value, struct ob_queue);
} queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} ring SEC(".maps");

static __always_inline struct ob_control *the_control(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

/* Returns OB_TCP or OB_UDP if the socket's port is watched, else 0. */
static __always_inline __u32 watched(struct sock *sk)
{
	__u32 port = sk->__sk_common.skc_num, at = port >> 6, kind = 0;
	struct ob_ports *bits;

	if (!port)
		return 0;
	bits = bpf_map_lookup_elem(&ports, &at);
	if (!bits || !bits->of[port & 63])
		return 0;
	if (sk->sk_protocol == IPPROTO_TCP)
		kind = OB_TCP;
	else if (sk->sk_protocol == IPPROTO_UDP)
		kind = OB_UDP;
	return bits->of[port & 63] & kind;
}

static __always_inline __u64 cookie_of(struct sock *sk)
{
	__u64 cookie = sk->__sk_common.skc_cookie.counter;

	return cookie ? cookie : bpf_get_socket_cookie(sk);
}

/* A datagram is in work by a thread: several threads may read one socket. Cookies are counted from 1. */
static __always_inline __u64 datagram_key(__u64 cookie, __u32 tid)
{
	return cookie ^ ((__u64)tid << 40);
}

static __always_inline struct ob_socket *socket_at(__u32 entry)
{
	return bpf_map_lookup_elem(&sockets, &entry);
}

static __noinline __u32 new_socket(__u64 key, struct ob_control *c)
{
	__u32 entry = ob_claim(&socket_keys, OB_SOCKET_SETS, key);
	struct ob_socket *s = entry == OB_NONE ? NULL : socket_at(entry);

	if (!s) {
		if (c)
			ADD(c->refused, 1);
		return OB_NONE;
	}
	s->established = s->ready = s->last_ready = s->last_answered = s->sequence = 0;
	s->state = OB_CLOSED;
	s->queue = s->request.answered = 0;
	return entry;
}

static __always_inline __u32 find_socket(__u64 key)
{
	return ob_find(&socket_keys, OB_SOCKET_SETS, key);
}

static __always_inline __u32 get_socket(__u64 key, struct ob_control *c)
{
	__u32 entry = find_socket(key);

	return entry == OB_NONE ? new_socket(key, c) : entry;
}

static __always_inline struct ob_thread *find_thread(__u32 tid)
{
	__u32 entry = ob_find(&thread_keys, OB_THREAD_SETS, tid);

	return entry == OB_NONE ? NULL : bpf_map_lookup_elem(&threads, &entry);
}

static __always_inline struct ob_thread *get_thread(__u32 tid, struct ob_control *c)
{
	struct ob_thread *t = find_thread(tid);
	__u32 entry;

	if (t)
		return t;
	entry = ob_claim(&thread_keys, OB_THREAD_SETS, tid);
	t = entry == OB_NONE ? NULL : bpf_map_lookup_elem(&threads, &entry);
	if (!t) {
		ADD(c->refused, 1);
		return NULL;
	}
	__builtin_memset(t, 0, sizeof *t);
	return t;
}

/* Returns the request of the thread's turn, if it is in work still. */
static __always_inline struct ob_socket *turn_of(struct ob_thread *t)
{
	struct ob_socket *s;

	if (!t->turn || !ob_is(&socket_keys, t->entry, t->turn))
		return NULL;
	s = socket_at(t->entry);
	return s && s->state == OB_OPEN ? s : NULL;
}

static __always_inline void clear_sums(struct ob_thread *t, __u64 now)
{
	t->cpu = t->run_queue = 0;
	for (int i = 0; i < OB_REASONS; i++)
		t->off[i] = 0;
	t->mark = now;
}

static __always_inline void begin_turn(struct ob_thread *t, __u64 key, __u32 entry, __u64 now)
{
	clear_sums(t, now);
	t->turn = key;
	t->entry = entry;
	t->handed = t->idle = 0;
	t->on = now;
	t->off_at = 0;
}

/* Accounts for the time in which the thread, which has its CPU again, was off it. */
static __always_inline void add_gap(struct ob_thread *t, struct task_struct *p, __u64 now)
{
	__u64 gap, delay;

	if (!t->off_at)
		return;
	/* The switch to it was not seen: tried, no program ran at switches away from two threads of the machine. What it
	 * ran since is not known then, and is usually short beside the time for which it slept. */
	if (t->on <= t->off_at)
		t->on = now;
	gap = t->on > t->off_at ? t->on - t->off_at : 0;
	delay = p->sched_info.run_delay - t->delay;
	/* The kernel's sum is by another clock: its differences may be a little longer than ours. */
	if (delay > gap || t->why == OB_RUNNABLE)
		delay = gap;
	t->run_queue += delay;
	if (t->why < OB_REASONS)
		t->off[t->why & 7] += gap - delay;
	t->off_at = 0;
}

/* Adds up to now what the thread, which runs, has used. */
static __always_inline void add_up(struct ob_thread *t, struct task_struct *p, __u64 now)
{
	if (!t->turn)
		return;
	add_gap(t, p, now);
	if (now > t->on)
		t->cpu += now - t->on;
	t->on = now;
}

static __always_inline __u64 at_most(__u64 time, __u64 *room)
{
	__u64 taken = time < *room ? time : *room;

	*room -= taken;
	return taken;
}

/* Adds the thread's sums to a request: no more than the time since it was read, although a reader and a worker may have
 * worked on it at once, or the thread have begun before. */
static __always_inline void charge(struct ob_socket *s, struct ob_thread *t, __u64 now)
{
	__u64 room = now - s->request.received, before;

	room = room > s->charged ? room - s->charged : 0;
	before = room;
	s->request.cpu += at_most(t->cpu, &room);
	s->request.run_queue += at_most(t->run_queue, &room);
	for (int i = 0; i < OB_REASONS; i++)
		s->request.off[i] += at_most(t->off[i], &room);
	s->charged += before - room;
	clear_sums(t, now);
}

/* The same for a request that the thread got from elsewhere: it may have slept since before the request came. */
static __always_inline void charge_since(struct ob_socket *s, struct ob_thread *t, __u64 now)
{
	if (t->mark < s->request.received) {
		t->run_queue = 0;
		for (int i = 0; i < OB_REASONS; i++)
			t->off[i] = 0;
	}
	charge(s, t, now);
}

static __always_inline void report(struct ob_socket *s, struct ob_control *c)
{
	if (s->state == OB_OPEN && !s->request.answered)
		ADD(c->unanswered, 1);
	else if (s->state == OB_OPEN &&
		 bpf_ringbuf_output(&ring, &s->request, sizeof s->request, BPF_RB_NO_WAKEUP))
		ADD(c->lost, 1);
	s->last_answered = s->request.answered;
	s->state = OB_CLOSED;
}

/* A thread reads another request: ends its turn. `same` is the socket from which it reads. */
static __always_inline void end_turn(struct ob_thread *t, struct task_struct *p, struct ob_socket *same, __u64 now)
{
	struct ob_socket *s;

	add_up(t, p, now);
	s = turn_of(t);
	if (!s || s->request.answered)
		return;
	if (s == same || (!t->handed && !t->idle))
		charge(s, t, now);
}

static __always_inline void begin_request(struct ob_socket *s, struct ob_thread *t, struct task_struct *p,
					  struct sock *sk, __u64 now, __u32 bytes)
{
	struct ob_request *r = &s->request;

	__builtin_memset(r, 0, sizeof *r);
	r->received = now;
	r->reader = p->pid;
	r->process = p->tgid;
	r->reads = 1;
	r->bytes_in = bytes;
	r->port = sk->__sk_common.skc_num;
	s->sequence = ++t->requests;
	s->charged = 0;
	s->state = OB_OPEN;
}

static __always_inline __u64 unread_bytes(struct sock *sk)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	return tcp ? tcp->rcv_nxt - tcp->copied_seq : 0;
}

static __always_inline int read_stream(struct sock *sk, struct task_struct *p, struct ob_control *c, __u32 bytes)
{
	__u64 cookie = cookie_of(sk), now = bpf_ktime_get_ns(), ready;
	__u32 entry = get_socket(cookie, c);
	struct ob_thread *t = get_thread(p->pid, c);
	struct ob_socket *s = entry == OB_NONE ? NULL : socket_at(entry);
	bool more, known;

	if (!s || !t)
		return 0;
	end_turn(t, p, s, now);
	ready = s->ready;
	known = s->last_ready;
	s->ready = unread_bytes(sk) ? s->last_ready : 0;
	more = s->state == OB_OPEN && !s->request.answered;
	if (more) {
		s->request.reads++;
		s->request.bytes_in += bytes;
	} else {
		ADD(c->requests, 1);
		report(s, c);
		begin_request(s, t, p, sk, now, bytes);
		if (!known) {
			ADD(c->unknown, 1);
			s->state = OB_IGNORED;
		}
		s->request.connection = cookie;
		s->request.ready = s->request.arrived = ready && ready < now ? ready : now;
		if (s->established) {
			s->request.arrived = s->established;
			s->request.flags |= OB_FIRST;
			s->established = 0;
		}
		if (s->last_answered > s->request.ready)
			s->request.flags |= OB_OVERLAPPED;
	}
	begin_turn(t, cookie, entry, now);
	return 0;
}

static __always_inline __u32 waiting_datagrams(struct sock *sk)
{
	__u32 moved = 0;

	bpf_probe_read_kernel(&moved, sizeof moved, &((struct udp_sock *)sk)->reader_queue.qlen);
	return sk->sk_receive_queue.qlen + moved;
}

/* Returns the arrivals of a datagram socket. At first, those of the datagrams that wait already are unknown (0);
 * `own` is how many of them the caller knows. */
static __always_inline struct ob_queue *queue_of(struct ob_socket *s, struct sock *sk, __u32 own,
						 struct ob_control *c)
{
	__u32 at = s->queue, zero = 0, waiting;
	struct ob_queue *q;

	if (at)
		return bpf_map_lookup_elem(&queues, &at);
	q = bpf_map_lookup_elem(&queues, &zero);
	if (!q)
		return NULL;
	at = ADD(q->pushed, 1) + 1;
	q = bpf_map_lookup_elem(&queues, &at);
	if (!q) {
		ADD(c->refused, 1);
		return NULL;
	}
	s->queue = at;
	waiting = waiting_datagrams(sk);
	q->popped = 0;
	q->pushed = waiting > own ? waiting - own : 0;
	for (__u32 i = 0; i < OB_DATAGRAMS; i++)
		q->at[i] = 0;
	return q;
}

/* Returns when the oldest datagram came, which was just read; 0 if that is unknown. */
static __always_inline __u64 pop_arrival(struct ob_queue *q, struct sock *sk, __u64 now)
{
	__u64 number = ADD(q->popped, 1), pushed = ACCESS(q->pushed), at;

	if (number >= pushed)
		return now; /* read on another CPU before it was announced */
	at = pushed - number > OB_DATAGRAMS ? 0 : q->at[number & (OB_DATAGRAMS - 1)];
	/* Datagrams that were announced and never read (a wrong checksum) must not shift all others. */
	if (!waiting_datagrams(sk) && number + 1 < pushed) {
		at = q->at[(pushed - 1) & (OB_DATAGRAMS - 1)];
		ACCESS(q->popped) = pushed;
	}
	return at;
}

static __noinline int read_datagram(struct sock *sk, struct task_struct *p, struct ob_control *c, __u32 bytes)
{
	__u64 cookie = cookie_of(sk), now = bpf_ktime_get_ns(), key = datagram_key(cookie, p->pid), at = now;
	__u32 own = get_socket(cookie, c), entry;
	struct ob_thread *t = get_thread(p->pid, c);
	struct ob_socket *s = own == OB_NONE ? NULL : socket_at(own), *d;
	struct ob_queue *q;

	if (!s || !t)
		return 0;
	q = queue_of(s, sk, 0, c);
	if (q)
		at = pop_arrival(q, sk, now);
	entry = get_socket(key, c);
	d = entry == OB_NONE ? NULL : socket_at(entry);
	if (!d)
		return 0;
	end_turn(t, p, d, now);
	ADD(c->requests, 1);
	report(d, c);
	begin_request(d, t, p, sk, now, bytes);
	if (!at) {
		ADD(c->unknown, 1);
		d->state = OB_IGNORED;
	}
	d->request.queue = cookie;
	d->request.connection = sk->__sk_common.skc_dport ? cookie : 0;
	d->request.ready = d->request.arrived = at;
	begin_turn(t, key, entry, now);
	return 0;
}

/* Whether the process is watched, if not all are. */
static __always_inline bool counts(struct ob_control *c, struct task_struct *p)
{
	__u32 process = p->tgid;

	return !c->restricted || bpf_map_lookup_elem(&processes, &process);
}

SEC("tp_btf/sock_recv_length")
int spans_recv(__u64 *ctx)
{
	struct ob_control *c = the_control();
	struct sock *sk = (void *)ctx[0];
	__s32 bytes = ctx[1], flags = ctx[2];
	struct task_struct *p;
	__u32 kind;

	if (!c || !c->on || bytes <= 0 || flags & MSG_PEEK)
		return 0;
	kind = watched(sk);
	if (!kind)
		return 0;
	p = bpf_get_current_task_btf();
	if (!counts(c, p))
		return 0;
	return kind == OB_TCP ? read_stream(sk, p, c, bytes) : read_datagram(sk, p, c, bytes);
}

/* Returns the entry of the request that a write to `sk` answers, and its key. */
static __always_inline __u32 answered_entry(struct sock *sk, struct ob_thread *t, __u32 kind, __u64 *key)
{
	struct ob_socket *s;

	*key = cookie_of(sk);
	if (kind == OB_TCP)
		return find_socket(*key);
	s = turn_of(t);
	if (s && s->request.queue == *key) {
		*key = t->turn;
		return t->entry;
	}
	*key = datagram_key(*key, bpf_get_current_pid_tgid());
	return find_socket(*key);
}

SEC("tp_btf/sock_send_length")
int spans_send(__u64 *ctx)
{
	struct ob_control *c = the_control();
	struct sock *sk = (void *)ctx[0];
	__s32 bytes = ctx[1];
	struct task_struct *p;
	struct ob_socket *s, *turn;
	struct ob_thread *t;
	__u64 now, key;
	__u32 kind, entry;

	if (!c || !c->on || bytes <= 0)
		return 0;
	kind = watched(sk);
	if (!kind)
		return 0;
	p = bpf_get_current_task_btf();
	if (!counts(c, p))
		return 0;
	t = get_thread(p->pid, c);
	if (!t)
		return 0;
	entry = answered_entry(sk, t, kind, &key);
	s = entry == OB_NONE ? NULL : socket_at(entry);
	if (!s || s->state == OB_CLOSED)
		return 0;
	now = bpf_ktime_get_ns();
	if (s->state == OB_IGNORED) {
		s->request.answered = now;
		return 0;
	}
	add_up(t, p, now);
	turn = turn_of(t);
	if (turn == s)
		charge(s, t, now);
	else if (turn && !turn->request.answered && !t->handed && !t->idle)
		charge(turn, t, now);
	else
		charge_since(s, t, now);
	if (s->request.reader == p->pid) {
		if (t->requests != s->sequence)
			s->request.flags |= OB_OVERLAPPED;
	} else if (turn != s) {
		s->request.flags |= OB_UNCONFIRMED;
	}
	s->request.writer = p->pid;
	s->request.writes++;
	s->request.bytes_out += bytes;
	s->request.answered = now;
	begin_turn(t, key, entry, now);
	return 0;
}

SEC("tp_btf/sk_data_ready")
int spans_ready(__u64 *ctx)
{
	struct ob_control *c = the_control();
	struct sock *sk = (void *)ctx[0];
	struct ob_socket *s;
	struct ob_queue *q;
	__u32 kind, entry;
	__u64 now, number;

	if (!c || !c->on)
		return 0;
	kind = watched(sk);
	if (!kind || sk->__sk_common.skc_state == TCP_LISTEN)
		return 0;
	entry = get_socket(cookie_of(sk), c);
	s = entry == OB_NONE ? NULL : socket_at(entry);
	if (!s)
		return 0;
	now = bpf_ktime_get_ns();
	if (kind == OB_TCP) {
		if (!s->ready)
			s->ready = now;
		s->last_ready = now;
		return 0;
	}
	q = queue_of(s, sk, 1, c);
	if (!q)
		return 0;
	number = ACCESS(q->pushed);
	q->at[number & (OB_DATAGRAMS - 1)] = now;
	ADD(q->pushed, 1);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int spans_state(__u64 *ctx)
{
	struct ob_control *c = the_control();
	struct sock *sk = (void *)ctx[0];
	__s32 to = ctx[2];
	struct ob_socket *s;
	__u64 cookie;
	__u32 entry;

	if (!c || !c->on)
		return 0;
	if (to == TCP_ESTABLISHED) {
		if (watched(sk) != OB_TCP)
			return 0;
		entry = get_socket(cookie_of(sk), c);
		s = entry == OB_NONE ? NULL : socket_at(entry);
		if (s)
			s->established = bpf_ktime_get_ns();
		return 0;
	}
	if (to != TCP_FIN_WAIT1 && to != TCP_LAST_ACK && to != TCP_CLOSE)
		return 0;
	/* The port may be 0 by now. */
	cookie = sk->__sk_common.skc_cookie.counter;
	if (!cookie)
		return 0;
	entry = find_socket(cookie);
	s = entry == OB_NONE ? NULL : socket_at(entry);
	if (!s)
		return 0;
	if (to == TCP_CLOSE || s->request.answered)
		report(s, c);
	if (to == TCP_CLOSE)
		ob_free(&socket_keys, entry);
	return 0;
}

static __always_inline __u32 reason_of(struct task_struct *p)
{
	struct pt_regs *regs = bpf_task_pt_regs(p);
	struct ob_reasons *of;
	__u32 zero = 0;
	__s64 number = -1;

	if (!regs)
		return OB_OTHER;
	if (bpf_core_field_exists(regs->orig_ax))
		number = regs->orig_ax;
	else if (bpf_core_field_exists(regs->syscallno))
		number = regs->syscallno;
	of = bpf_map_lookup_elem(&reasons, &zero);
	if (!of || number < 0 || number >= OB_SYSCALLS)
		return OB_OTHER;
	return of->of[number & (OB_SYSCALLS - 1)];
}

static __always_inline void leave_cpu(struct ob_thread *t, struct task_struct *p, bool runnable, __u64 now)
{
	struct ob_socket *s;

	add_up(t, p, now);
	t->off_at = now;
	t->delay = p->sched_info.run_delay;
	t->why = runnable ? OB_RUNNABLE : reason_of(p);
	if (t->why != OB_IDLE || t->idle)
		return;
	s = turn_of(t);
	if (s && !s->request.answered && !t->handed)
		charge(s, t, now);
	t->idle = 1;
}

static __always_inline void free_thread(__u32 tid)
{
	__u32 entry = ob_find(&thread_keys, OB_THREAD_SETS, tid);

	if (entry != OB_NONE)
		ob_free(&thread_keys, entry);
}

SEC("tp_btf/sched_switch")
int spans_switch(__u64 *ctx)
{
	struct ob_control *c = the_control();
	bool preempted = ctx[0];
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	__u32 state = ctx[3];
	struct ob_thread *t;
	__u64 now = 0;

	if (!c || !c->on)
		return 0;
	t = find_thread(prev->pid);
	if (t && prev->pid) {
		if (state & TASK_DEAD)
			free_thread(prev->pid);
		else if (t->turn)
			leave_cpu(t, prev, preempted || !state, now = bpf_ktime_get_ns());
	}
	t = find_thread(next->pid);
	if (t && next->pid && t->turn) {
		t->on = now ? now : bpf_ktime_get_ns();
		/* What follows a wait for any request counts from here. */
		if (t->off_at && t->why == OB_IDLE)
			t->mark = t->on;
	}
	return 0;
}

/* Whether the first argument of a thread's system call is the descriptor of a socket. */
static __noinline bool is_to_socket(struct task_struct *p)
{
	struct pt_regs *regs = bpf_task_pt_regs(p);
	struct fdtable *table;
	struct file **files, *file = NULL;
	struct inode *inode = NULL;
	__u64 fd = 0;
	__u16 mode = 0;

	if (bpf_core_field_exists(regs->di))
		fd = regs->di;
	else if (bpf_core_field_exists(regs->orig_x0))
		fd = regs->orig_x0;
	table = p->files->fdt;
	if (fd >= table->max_fds)
		return false;
	files = table->fd;
	bpf_probe_read_kernel(&file, sizeof file, &files[fd]);
	bpf_probe_read_kernel(&inode, sizeof inode, &file->f_inode);
	bpf_probe_read_kernel(&mode, sizeof mode, &inode->i_mode);
	return (mode & S_IFMT) == S_IFSOCK;
}

/* Whether `waker`, by its system call, passes something on to `p`, by its own: not so an interrupt that comes while
 * `waker` runs. An answer may wake a client in the same process: a pipe or an eventfd passes a turn on, a socket not. */
static __always_inline bool passes_on(struct task_struct *waker, struct task_struct *p)
{
	__u32 to = reason_of(p), by = reason_of(waker);

	if (to == OB_FUTEX)
		return by == OB_FUTEX;
	return (to == OB_READ || to == OB_IDLE) && by == OB_WRITE && !is_to_socket(waker);
}

SEC("tp_btf/sched_waking")
int spans_waking(__u64 *ctx)
{
	struct ob_control *c = the_control();
	struct task_struct *p = (void *)ctx[0], *waker;
	struct ob_socket *s, *own;
	struct ob_thread *t, *w;
	__u64 now;

	if (!c || !c->on)
		return 0;
	waker = bpf_get_current_task_btf();
	if (waker->tgid != p->tgid || waker->pid == p->pid)
		return 0;
	t = find_thread(waker->pid);
	if (!t || !t->turn || t->idle)
		return 0;
	s = turn_of(t);
	if (!s || s->request.answered || !passes_on(waker, p))
		return 0;
	w = get_thread(p->pid, c);
	if (!w)
		return 0;
	/* A lock that it waits for in the middle of its own request. */
	own = turn_of(w);
	if (own && !own->request.answered && !w->idle && !w->handed)
		return 0;
	now = bpf_ktime_get_ns();
	add_up(t, waker, now);
	charge(s, t, now);
	t->handed = 1;
	begin_turn(w, t->turn, t->entry, now);
	w->off_at = now;
	w->why = OB_RUNNABLE;
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
