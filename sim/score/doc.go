// Package score says how well models predict a series, as they would have while it was measured.
//
// Run gives a series to models value by value. At every origin, a value that was measured with enough of them before, each
// model states the next steps; each step is scored with the value that came then, and with nothing if none was measured.
// An origin counts only if every model could predict there, so that all are scored on exactly the same ones; how often each
// could not is counted.
//
// Measures:
//
//   - MASE: mean absolute error of the median, divided by the scale: the mean absolute difference of neighbours, over the
//     whole series. The scale knows the future, the models do not: it is the same for all of them, and a quiet beginning
//     or a jump does not let a few series decide the mean of a set. One step ahead the last value has a MASE of about 1.
//   - Pinball loss: mean over forecast.Levels, divided by the same scale. It judges the whole distribution: lower is better,
//     and no statement but the true quantiles gets the lowest.
//   - Coverage: the share of values within the central intervals of 50, 80, 95 and 99%. A value on a bound, to 1e-9 of its
//     size, is within. Where values repeat an honest interval may so hold more than its name says, therefore values on a
//     bound are counted apart as well: what is strictly within must not be too much, what is not outside not too little.
//
// A series is still if at least 95% of its values equal the one before, or are one and the same value: an interval that
// holds this value covers more than 95% by that alone. Such series are summarized apart. If all values are equal there is
// no scale and no MASE, only coverage. A series with few origins is short, and in no summary.
//
// Summaries are means over series: a VM with a long record counts no more than another.
//
// The package does no I/O and no timing, and runs no goroutines: callers run series side by side if they like.
package score
