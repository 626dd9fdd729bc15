// Package arima fits seasonal autoregressive integrated moving-average models with external regressors to a series,
// forecasts from them, and follows the series value by value.
//
// # The model
//
// With B the shift by one step and s the period, u(t) = y(t) - x(t)·beta follows
//
//	phi(B) Phi(B^s) (w(t) - mu) = theta(B) Theta(B^s) e(t),    w(t) = (1-B)^d (1-B^s)^D u(t),    e(t) ~ N(0, sigma2)
//
// with phi(B) = 1 - phi1 B - ..., theta(B) = 1 + theta1 B + .... This is the convention of R's arima: the intercept is
// the mean of the process, not the constant of its recursion, and moving-average signs are positive. (Box, Jenkins,
// Reinsel: Time Series Analysis; Pace, Milios, Carra, Michiardi, sec. III-A, eq. 1 and 2.)
//
// # The fit
//
// Fit maximises the exact Gaussian likelihood. sigma2, mu and beta are profiled out (generalised least squares on the
// filtered columns), so that only the ARMA coefficients are searched, as partial autocorrelations, which keeps every
// trial stationary and invertible. A series without gaps is differenced and filtered by the Chandrasekhar recursions,
// of order r a step; one with gaps (NaN) keeps its last values in the state of a Kalman filter, so that a gap costs only
// the value that is missing. Both stop updating their gains once these have converged.
//
// # The forecast
//
// Forecast states the mean and the variance of the *values* to come. Their square root makes prediction intervals: about
// 95% of the values fall within 1.96 of it, if the model holds. It is not the standard error of a mean or of a
// parameter; confidence intervals made of those shrink as the series grows, while what one value does next stays as
// uncertain as it is. Pace, sec. III-A, found resource shaping by the narrow ones to be harmful. The uncertainty of the
// coefficients themselves is not in the variance (nor is it in R's): with few values per coefficient intervals are too
// narrow, which is for the caller to correct by what it measures.
//
// # What it never does
//
// It reads no clock, does no I/O, starts no goroutine and draws no random number: equal input gives equal output. It
// does not panic on any input; what it cannot fit it refuses with an error that says why.
package arima
