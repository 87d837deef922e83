package runtime

import (
	"internal/runtime/atomic"
	"internal/runtime/syscall/linux"
	"unsafe"
)

// The page: a file in memory, memfd:heddle:PID, where other processes of the user read
// heddle.counts. The scheduler counts in the mapped file, so showing them costs nothing. Its form is
// that of crates/telemetry/src/layout.rs, whose readers find it: change both together, and
// heddlePageVersion. With HEDDLE_TELEMETRY=off, and if the system has no memory or descriptor left,
// the scheduler counts in memory of its own.

const (
	heddlePageMagic   = 0x4750_454c_4444_4548 // HEDDLEPG
	heddlePageVersion = 1
	heddlePageHeader  = 256
	heddlePageEntry   = 32
	heddlePageAlign   = 128
	heddlePageClockNs = 2
)

// heddlePageNames are the names of the fields of heddleCounts, in their order. Those without one are
// not shown: the longest wait is no sum.
var heddlePageNames = [...]string{
	"heddle_go_skips_total",
	"heddle_go_held_total",
	"heddle_go_forced_total",
	"heddle_go_ticks_total",
	"heddle_go_timer_calls_total",
	"heddle_go_preemptions_total",
	"heddle_go_waits_total",
	"heddle_go_waited_seconds_total",
	"",
	"heddle_go_aged_total",
}

// heddlePublish has the scheduler count in a page from now on. Nothing has been counted yet.
func heddlePublish() {
	if !secureMode && gogetenv("HEDDLE_TELEMETRY") == "off" {
		return
	}
	labels := "layer=go"
	if heddle.twoQueue {
		labels = "layer=go,policy=two-queue"
	}
	names := uintptr(len(labels))
	for _, name := range heddlePageNames {
		names += uintptr(len(name))
	}
	texts := heddlePageAfter(heddlePageHeader, uintptr(len(heddlePageNames))*heddlePageEntry)
	counts := heddlePageAfter(texts, names)
	size := heddlePageAfter(counts, unsafe.Sizeof(heddleCounts{}))
	pid, _, _ := linux.Syscall6(heddleGetpid, 0, 0, 0, 0, 0, 0)
	page := heddlePageMap(pid, size)
	if page == nil {
		return
	}
	at := heddlePageText(page, texts, 0, labels)
	for i, name := range heddlePageNames {
		if name == "" {
			continue
		}
		entry := add(page, heddlePageHeader+uintptr(i)*heddlePageEntry)
		*(*uint64)(entry) = 1 // it is shown
		*(*uint32)(add(entry, 8)) = uint32(at)
		*(*uint32)(add(entry, 12)) = uint32(len(name))
		at = heddlePageText(page, texts, at, name)
	}
	*(*uint32)(add(page, 8)) = heddlePageVersion
	*(*uint32)(add(page, 12)) = uint32(pid)
	*(*uint64)(add(page, 16)) = uint64(nanotime())
	*(*uint64)(add(page, 24)) = uint64(cputicks())
	*(*uint32)(add(page, 32)) = heddlePageClockNs
	*(*uint32)(add(page, 36)) = uint32(len(heddlePageNames))
	*(*uint32)(add(page, 52)) = uint32(names)
	*(*uint64)(add(page, 56)) = uint64(len(labels)) << 32 // they are the first text
	atomic.Store64((*uint64)(page), heddlePageMagic)
	heddle.counts = (*heddleCounts)(add(page, counts))
}

// heddlePageAfter returns where the next part begins after one of so many bytes.
func heddlePageAfter(at, bytes uintptr) uintptr {
	return alignUp(at+bytes, heddlePageAlign)
}

// heddlePageText writes text at an offset of the page's texts, and returns the offset after it.
func heddlePageText(page unsafe.Pointer, texts, at uintptr, text string) uintptr {
	for i := range len(text) {
		*(*byte)(add(page, texts+at+uintptr(i))) = text[i]
	}
	return at + uintptr(len(text))
}

// heddlePageMap makes and maps the file, nil if the system refuses. No process can change its size,
// and its memory is allocated: no access to it can end this process or a reader. The descriptor has
// a high number, out of the way of programs that count on low ones.
func heddlePageMap(pid, size uintptr) unsafe.Pointer {
	const (
		cloexecAllowSealing = 3
		addSeals, sealAsIs  = 1033, 7 // SEAL, SHRINK and GROW
		dupCloexec          = 1030
		limitFiles, high    = 7, 960
		readWrite, shared   = 3, 1
		ownerOnly           = 0o600
	)
	var digits [20]byte
	var name [32]byte
	copy(name[copy(name[:], "heddle:"):], itoa(digits[:], uint64(pid)))
	fd, _, errno := linux.Syscall6(heddleMemfdCreate, uintptr(unsafe.Pointer(&name)), cloexecAllowSealing, 0, 0, 0, 0)
	if errno != 0 {
		return nil
	}
	var limit [2]uint64
	number := uintptr(high)
	_, _, unlimited := linux.Syscall6(heddlePrlimit, 0, limitFiles, 0, uintptr(unsafe.Pointer(&limit)), 0, 0)
	if unlimited == 0 {
		number = uintptr(min(high, limit[0]/4*3))
	}
	if moved, _, errno := linux.Syscall6(heddleFcntl, fd, dupCloexec, number, 0, 0, 0); errno == 0 {
		linux.Syscall6(heddleClose, fd, 0, 0, 0, 0, 0)
		fd = moved
	}
	for _, call := range [...][5]uintptr{
		{heddleFtruncate, fd, size},
		{heddleFchmod, fd, ownerOnly},
		{heddleFcntl, fd, addSeals, sealAsIs},
		{heddleFallocate, fd, 0, 0, size},
	} {
		if errno == 0 {
			_, _, errno = linux.Syscall6(call[0], call[1], call[2], call[3], call[4], 0, 0)
		}
	}
	var page uintptr
	if errno == 0 {
		page, _, errno = linux.Syscall6(heddleMmap, 0, size, readWrite, shared, fd, 0)
	}
	if errno != 0 {
		linux.Syscall6(heddleClose, fd, 0, 0, 0, 0, 0)
		return nil
	}
	return unsafe.Pointer(page)
}
