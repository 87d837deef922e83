package runtime

const (
	heddlePrctl        = 167
	heddlePpoll        = 73
	heddleClockGettime = 113
	heddleSchedGetattr = 275
	heddleSchedSetattr = 274
)
