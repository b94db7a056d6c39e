"""Derives the polynomial coefficients in this folder (needs mpmath).

Each polynomial minimises the largest weighted error on an interval (Remez's exchange algorithm). The
coefficients are then rounded to the working precision one after the other, lowest power first, and the
remaining ones fitted again, so that rounding costs almost nothing.
"""
import sys
from mpmath import mp, mpf, exp, log, sin, cos, tan, asin, atan, tanh, sinh, erf, erfc, log1p, expm1, sqrt, pi, lu_solve, matrix

mp.dps = 40


def rounded(value, bits):
    if value == 0:
        return mpf(0)
    exponent = mp.floor(mp.log(abs(value), 2))
    scale = mpf(2) ** (bits - 1 - exponent)
    return mp.nint(value * scale) / scale


def remez(target, weight, low, high, powers):
    """Coefficients of sum c_k u^powers[k]; `target` and `weight` are functions of u."""
    n = len(powers)
    grid = [low + (high - low) * (1 - mp.cos(pi * k / 400)) / 2 for k in range(401)]
    goals = [target(u) for u in grid]
    weights = [max(weight(u), mpf(10) ** -15) for u in grid]
    points = [round(k * 400 / n) for k in range(n + 1)]
    for _ in range(30):
        system = matrix(n + 1, n + 1)
        right = matrix(n + 1, 1)
        for row, k in enumerate(points):
            for column, power in enumerate(powers):
                system[row, column] = grid[k] ** power
            system[row, n] = (-1) ** row / weights[k]
            right[row] = goals[k]
        solution = lu_solve(system, right)
        found = [solution[k] for k in range(n)]
        errors = [
            (sum(c * u**p for c, p in zip(found, powers)) - g) * w
            for u, g, w in zip(grid, goals, weights)
        ]
        extrema = []
        for k, error in enumerate(errors):
            if extrema and (error > 0) == (errors[extrema[-1]] > 0):
                if abs(error) > abs(errors[extrema[-1]]):
                    extrema[-1] = k
            else:
                extrema.append(k)
        while len(extrema) > n + 1:
            extrema.pop(0 if abs(errors[extrema[0]]) < abs(errors[extrema[-1]]) else -1)
        if len(extrema) < n + 1 or extrema == points:
            break
        points = extrema
    return found, max(abs(e) for e in errors)


def shown(value, bits):
    return mp.nstr(value, 9, strip_zeros=False) if bits == 24 else repr(float(value))


def fit(name, target, weight, low, high, degree, bits=24, step=1, exact=(), refit=True):
    """Prints coefficients, lowest power first; `exact`: leading ones that are given;
    `refit`: after rounding one, fit the others again."""
    low, high = mpf(low), mpf(high)
    fixed = [mpf(c) for c in exact]
    while len(fixed) <= degree:
        powers = [k * step for k in range(len(fixed), degree + 1)]
        known = lambda u: sum(c * u ** (k * step) for k, c in enumerate(fixed))
        found, _ = remez(lambda u: target(u) - known(u), weight, low, high, powers)
        fixed += [rounded(c, bits) for c in (found[:1] if refit else found)]
    worst = max(
        abs((sum(c * u ** (k * step) for k, c in enumerate(fixed)) - target(u)) * weight(u))
        for u in (low + (high - low) * k / 500 for k in range(501))
    )
    print(f"{name}: error 2^{mp.nstr(mp.log(worst, 2), 4)}")
    print("    [" + ", ".join(shown(c, bits) for c in fixed) + "]")


tiny = mpf(2) ** -60


def odd(f):
    """(f(x) - x) / x^3 as a function of x^2, with its weight for relative error."""
    def target(u):
        u = max(u, tiny)
        x = sqrt(u)
        return (f(x) - x) / (u * x)

    def weight(u):
        u = max(u, tiny)
        x = sqrt(u)
        return abs(u * x / f(x))

    return target, weight


def away(x):
    return x if abs(x) > tiny else tiny


def scaled_erfc(q):
    x = 4 * (1 + q) / (1 - q)
    return (1 + 2 * x) * exp(x * x) * erfc(x)


GELU_SCALE = mpf(13421773) / 2**25


def gelu_factor(u):
    a = u / (1 - GELU_SCALE * u)
    return (1 + GELU_SCALE * a) * erfc(a / sqrt(mpf(2))) * exp(a * a / 2) / 2


SINGLE = {
    "exp: (e^r - 1 - r) / r^2": lambda n: fit(n, lambda r: (expm1(away(r)) - away(r)) / away(r) ** 2, lambda r: r**2 / exp(r), -0.3468, 0.3468, 4),
    "expm1: (e^r - 1 - r) / r^2": lambda n: fit(n, lambda r: (expm1(away(r)) - away(r)) / away(r) ** 2, lambda r: abs(away(r) ** 2 / expm1(away(r))), -0.502, 0.502, 5),
    "exp2: 2^r": lambda n: fit(n, lambda r: mpf(2) ** r, lambda r: mpf(2) ** -r, -0.5005, 0.5005, 6, exact=[1]),
    "log: (log(1 + f) - f) / f^2": lambda n: fit(n, lambda f: (log1p(away(f)) - away(f)) / away(f) ** 2, lambda f: abs(away(f) ** 2 / log1p(away(f))), -0.25, 0.5, 9, exact=[-0.5]),
    "sin: (sin r - r) / r^3": lambda n: fit(n, *odd(sin), 0, mpf(0.786) ** 2, 3),
    "cos: (cos r - 1) / r^2": lambda n: fit(n, lambda u: (cos(sqrt(max(u, tiny))) - 1) / max(u, tiny), lambda u: max(u, tiny) / cos(sqrt(u)), 0, mpf(0.786) ** 2, 3, exact=[-0.5]),
    "tan: (tan r - r) / r^3": lambda n: fit(n, *odd(tan), 0, mpf(0.786) ** 2, 6),
    "asin: (asin x - x) / x^3": lambda n: fit(n, *odd(asin), 0, mpf(0.5625) ** 2, 6),
    "atan: (atan x - x) / x^3": lambda n: fit(n, *odd(atan), 0, 1, 8),
    "tanh: (tanh x - x) / x^3": lambda n: fit(n, *odd(tanh), 0, 0.36, 4),
    "sinh: (sinh x - x) / x^3": lambda n: fit(n, *odd(sinh), 0, 1, 3),
    "erf near 0: (erf x - x) / x": lambda n: fit(n, lambda u: (erf(sqrt(max(u, tiny))) - sqrt(max(u, tiny))) / sqrt(max(u, tiny)), lambda u: sqrt(max(u, tiny)) / erf(sqrt(max(u, tiny))), 0, 1, 7),
    "erf nearer 0: (erf x - x) / x": lambda n: fit(n, lambda u: (erf(sqrt(max(u, tiny))) - sqrt(max(u, tiny))) / sqrt(max(u, tiny)), lambda u: sqrt(max(u, tiny)) / erf(sqrt(max(u, tiny))), 0, mpf(0.48) ** 2, 5),
    "erf: -log(erfc t) / t - 1": lambda n: fit(n, lambda t: -log(erfc(t)) / t - 1, lambda t: t * erfc(t) / erf(t), 0.99, 4.0, 8),
    "erfc: (1 + 2 x) e^(x^2) erfc x, of (x - 4) / (x + 4)": lambda n: fit(n, scaled_erfc, lambda q: 1 / scaled_erfc(q), mpf(0.45 - 4) / mpf(4.45), mpf(10.1 - 4) / mpf(14.1), 10, refit=False),
    "gelu: (1 + 0.4 a) e^(a^2 / 2) P(z > a), of a / (1 + 0.4 a)": lambda n: fit(n, gelu_factor, lambda u: 1 / gelu_factor(u), 0, mpf(14.5) / (1 + GELU_SCALE * mpf(14.5)), 9, refit=False),
    "softplus: (log(1 + e) - e) / e^2": lambda n: fit(n, lambda e: (log1p(away(e)) - away(e)) / away(e) ** 2, lambda e: away(e) ** 2 / log1p(away(e)), 0, 1, 9, refit=False),
    "log2: (log2((1 + s) / (1 - s)) / s - 2 / ln 2) / s^2": lambda n: fit(n, lambda u: (log((1 + sqrt(max(u, tiny))) / (1 - sqrt(max(u, tiny)))) / log(2) / sqrt(max(u, tiny)) - 2 / log(2)) / max(u, tiny), lambda u: max(u, tiny), 0, mpf(0.1717) ** 2, 3),
}

DOUBLE = {
    "exp f64: (e^r - 1 - r) / r^2": lambda n: fit(n, lambda r: (expm1(away(r)) - away(r)) / away(r) ** 2, lambda r: r**2 / exp(r), -0.3467, 0.3467, 9, bits=53, refit=False),
    "log f64: (log((1 + s) / (1 - s)) - 2 s) / s^3": lambda n: fit(n, lambda u: (log((1 + sqrt(max(u, tiny))) / (1 - sqrt(max(u, tiny)))) - 2 * sqrt(max(u, tiny))) / (max(u, tiny) * sqrt(max(u, tiny))), lambda u: max(u, tiny), 0, mpf(0.1717) ** 2, 6, bits=53),
}

if __name__ == "__main__":
    for name, run in (SINGLE | DOUBLE).items():
        if len(sys.argv) < 2 or sys.argv[1] in name:
            run(name)
