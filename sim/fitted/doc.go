// Package fitted has the models that Pace compares: ARIMA and Gaussian-process regression, fitted to the latest values now and
// then. The simulator and the reproductions use them. Production does not: docs/reproduction/forecasts.md has what they gained.
package fitted
