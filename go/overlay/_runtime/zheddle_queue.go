package runtime

import "internal/runtime/atomic"

// Two queues in one. sched.runq is a list: first the goroutines that are new or were woken, then
// those that were preempted or yielded. New ones are taken first, in batches as in the stock
// runtime; preempted ones one at a time, when there is no other work (Aspen, section 3.2, has two
// queues; Aspen-Go has one). All of this runs under sched.lock, so the counters need no atomic
// instructions, which would make Gosched half as expensive again.

// heddlePush appends gp to the new section.
func heddlePush(gp *g) {
	batch := gQueue{}
	batch.pushBack(gp)
	heddlePushAll(batch)
}

// heddlePushAll appends a list to the new section. Its last link may be stale: runqputslow leaves
// it so.
func heddlePushAll(batch gQueue) {
	if heddle.preempted == 0 || batch.size == 0 {
		sched.runq.pushBackAll(batch)
	} else {
		heddleInsert(batch)
	}
	if heddle.twoQueue && batch.size != 0 {
		heddle.lastNew = batch.tail
		heddle.fresh += batch.size
		heddleVerify()
	}
}

// heddleInsert inserts a list between the two sections.
func heddleInsert(batch gQueue) {
	q := &sched.runq
	last := batch.tail.ptr()
	if before := heddle.lastNew.ptr(); before != nil {
		last.schedlink = before.schedlink
		before.schedlink = batch.head
	} else {
		last.schedlink = q.head
		q.head = batch.head
	}
	q.size += batch.size
}

// heddlePushFront puts gp at the head of the queue.
func heddlePushFront(gp *g) {
	sched.runq.push(gp)
	if !heddle.twoQueue {
		return
	}
	if heddle.lastNew == 0 {
		heddle.lastNew.set(gp)
	}
	heddle.fresh++
	heddleVerify()
}

// heddlePutBack queues gp, which was preempted or has yielded, for its next turn.
func heddlePutBack(gp *g, preempted bool) {
	if preempted {
		heddle.counts.preemptions++
	}
	if !heddle.twoQueue || gp.heddleClass == heddleLatencyCritical {
		globrunqput(gp)
		return
	}
	now := heddleQueueTime()
	gp.waitsince = now // free here: the runtime uses it for blocked goroutines
	sched.runq.pushBack(gp)
	if heddle.preempted++; heddle.preempted == 1 {
		heddle.oldest = now
	}
	heddleVerify()
}

// heddlePop is the occasional check of the global queue for fairness (heddleFairness). Returns nil
// if no goroutine should run before the local queue.
func heddlePop() *g {
	switch {
	case !heddle.twoQueue:
		return sched.runq.pop()
	case heddle.aged.Load():
		heddle.aged.Store(false)
		if heddle.preempted != 0 {
			heddle.counts.aged++
			return heddlePopPreempted()
		}
	}
	return heddlePopNew()
}

// heddlePopBatch takes up to n new goroutines, or one preempted one if there are no new ones. The
// queue must not be empty.
func heddlePopBatch(n int32) (gp *g, q gQueue) {
	fresh := heddle.fresh
	if fresh == 0 {
		return heddlePopPreempted(), q
	}
	n = min(n, fresh, fresh/gomaxprocs+1)
	gp = heddlePopNew()
	for n--; n > 0; n-- {
		q.pushBack(heddlePopNew())
	}
	return gp, q
}

// heddlePopNew removes the first new goroutine, nil if there is none.
func heddlePopNew() *g {
	if heddle.fresh == 0 {
		return nil
	}
	gp := sched.runq.pop()
	if heddle.fresh--; heddle.fresh == 0 {
		heddle.lastNew = 0
	}
	heddleVerify()
	return gp
}

// heddlePopPreempted removes the first preempted goroutine, which must exist.
func heddlePopPreempted() *g {
	q := &sched.runq
	before := heddle.lastNew.ptr()
	if before == nil {
		return heddleStarts(q.pop())
	}
	gp := before.schedlink.ptr()
	before.schedlink = gp.schedlink
	if before.schedlink == 0 {
		q.tail.set(before)
	}
	q.size--
	return heddleStarts(gp)
}

// heddleStarts accounts for gp, which was the first preempted one and leaves the queue.
func heddleStarts(gp *g) *g {
	waited := uint64(max(heddleQueueTime()-gp.waitsince, 0))
	gp.waitsince = 0
	heddle.counts.waits++
	heddle.counts.waited += waited
	heddle.counts.longest = max(heddle.counts.longest, waited)
	heddle.oldest = 0
	if heddle.preempted--; heddle.preempted != 0 {
		heddle.oldest = gp.schedlink.ptr().waitsince
	}
	heddleVerify()
	return gp
}

// heddleFairness reports whether findRunnable should check the global queue before the local one.
func heddleFairness(pp *p) bool {
	heddleServeNet()
	if !heddle.twoQueue {
		return pp.schedtick%61 == 0 && !sched.runq.empty()
	}
	return heddle.aged.Load() || pp.schedtick%61 == 0 && atomic.Loadint32(&heddle.fresh) != 0
}

// heddleHasNew reports whether findRunnable should take from the global queue before it polls the
// network and searches other Ps.
func heddleHasNew() bool {
	if !heddle.twoQueue {
		return !sched.runq.empty()
	}
	return atomic.Loadint32(&heddle.fresh) != 0
}

// heddleTake returns what findRunnable runs when there is no other work: a preempted goroutine,
// nil if none waits.
func heddleTake() *g {
	if atomic.Loadint32(&heddle.preempted) == 0 {
		return nil
	}
	lock(&sched.lock)
	var gp *g
	if sched.runq.size != 0 {
		gp, _ = heddlePopBatch(1)
	}
	unlock(&sched.lock)
	return gp
}

// heddleTakeEarly is heddleTake before findRunnable tries to steal, if there is nothing to steal:
// each Gosched need not search all Ps four times.
func heddleTakeEarly(pp *p) *g {
	if atomic.Loadint32(&heddle.preempted) == 0 {
		return nil
	}
	for _, other := range allp {
		if other != pp && !runqempty(other) {
			return nil
		}
	}
	return heddleTake()
}

// heddleVerify walks the queue and throws if it violates R1 or the fields of heddle. Only with
// HEDDLE_GO=check=on.
func heddleVerify() {
	if !heddle.check {
		return
	}
	q := &sched.runq
	var last guintptr
	isNew := heddle.lastNew != 0
	var count [2]int32
	for link := q.head; link != 0; link = link.ptr().schedlink {
		last = link
		if isNew {
			count[0]++
		} else {
			count[1]++
		}
		isNew = isNew && link != heddle.lastNew
	}
	if isNew || last != q.tail || count[0]+count[1] != q.size ||
		count[0] != heddle.fresh || count[1] != heddle.preempted ||
		(count[1] == 0) != (heddle.oldest == 0) {
		print("heddle: new ", count[0], " of ", heddle.fresh, ", preempted ", count[1], " of ", heddle.preempted,
			", in all ", q.size, "\n")
		throw("heddle: the global run queue is broken")
	}
}
