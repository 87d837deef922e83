package runtime

const (
	heddlePrctl        = 157
	heddlePpoll        = 271
	heddleSchedGetattr = 315
	heddleSchedSetattr = 314
)
