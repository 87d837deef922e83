package runtime

const (
	heddleRtSigpending = 127
	heddlePrctl        = 157
	heddlePpoll        = 271
	heddleClockGettime = 228
	heddleSchedGetattr = 315
	heddleSchedSetattr = 314

	heddleClose       = 3
	heddleMmap        = 9
	heddleGetpid      = 39
	heddleFcntl       = 72
	heddleFtruncate   = 77
	heddleFchmod      = 91
	heddleFallocate   = 285
	heddlePrlimit     = 302
	heddleMemfdCreate = 319
)
