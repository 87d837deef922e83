package runtime

const (
	heddleRtSigpending = 136
	heddlePrctl        = 167
	heddlePpoll        = 73
	heddleClockGettime = 113
	heddleSchedGetattr = 275
	heddleSchedSetattr = 274

	heddleClose       = 57
	heddleMmap        = 222
	heddleGetpid      = 172
	heddleFcntl       = 25
	heddleFtruncate   = 46
	heddleFchmod      = 52
	heddleFallocate   = 47
	heddlePrlimit     = 261
	heddleMemfdCreate = 279
)
