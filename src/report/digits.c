/* digits.c - numbers as people read them. */
#include "report/digits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *dash(char out[DIGITS])
{
    snprintf(out, DIGITS, "–");
    return out;
}

const char *digits_group(double number, char out[DIGITS])
{
    char digits[DIGITS];
    if (!(fabs(number) < 1e15)) return digits_plain(number, 4, out);
    int length = snprintf(digits, sizeof digits, "%.0f", fabs(number));
    char *next = out;
    if (number <= -0.5) *next++ = '-';
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) *next++ = ',';
        *next++ = digits[i];
    }
    *next = '\0';
    return out;
}

const char *digits_short(double number, char out[DIGITS])
{
    static const char *const units[] = {"", "K", "M", "B", "T"};
    int unit = 0;
    if (!(fabs(number) < 1e15)) return digits_plain(number, 3, out);
    while (fabs(number) >= 999.5 && unit < 4) {
        number /= 1000;
        unit++;
    }
    snprintf(out, DIGITS, fabs(number) < 99.95 && unit ? "%.1f" : "%.0f", number);
    size_t length = strlen(out);
    if (length > 2 && !strcmp(out + length - 2, ".0")) out[length - 2] = '\0';
    strcat(out, units[unit]);
    return out;
}

/* "2.5e-5" instead of "2.50e-05". */
static const char *with_power(double number, int significant, char out[DIGITS])
{
    char digits[DIGITS];
    snprintf(digits, sizeof digits, "%.*e", significant - 1, number);
    char *exponent = strchr(digits, 'e'), *end = exponent;
    if (memchr(digits, '.', (size_t)(exponent - digits))) {
        while (end[-1] == '0') end--;
        if (end[-1] == '.') end--;
    }
    snprintf(out, DIGITS, "%.*se%d", (int)(end - digits), digits, atoi(exponent + 1));
    return out;
}

const char *digits_plain(double number, int significant, char out[DIGITS])
{
    if (!isfinite(number)) return dash(out);
    double size = fabs(number);
    if (size >= 1e4 && size < 1e9 && number == rint(number)) return digits_group(number, out);
    if (size != 0 && (size < 9.9999e-4 || size >= 1e6)) return with_power(number, significant, out);
    snprintf(out, DIGITS, "%.*g", significant, number);
    return strchr(out, 'e') ? digits_group(number, out) : out; /* more digits, but readable */
}

const char *digits_tick(double number, char out[DIGITS])
{
    return fabs(number) >= 1e4 ? digits_short(number, out) : digits_plain(number, 6, out);
}

const char *digits_power(double number, char out[DIGITS])
{
    return isfinite(number) ? with_power(number, 6, out) : dash(out);
}

const char *digits_fixed(double number, int decimals, char out[DIGITS])
{
    if (!isfinite(number)) return dash(out);
    if (fabs(number) >= 1e9) return digits_plain(number, 4, out);
    snprintf(out, DIGITS, "%.*f", decimals, number);
    return out;
}

const char *digits_time(double seconds, char out[DIGITS])
{
    if (!(seconds >= 0 && seconds < 1e10)) return dash(out);
    long long s = llrint(seconds);
    if (s < 60)
        snprintf(out, DIGITS, "%lld s", s);
    else if (s < 3600)
        snprintf(out, DIGITS, "%lld min %02lld s", s / 60, s % 60);
    else if (s < 48 * 3600)
        snprintf(out, DIGITS, "%lld h %02lld min", s / 3600, s / 60 % 60);
    else
        snprintf(out, DIGITS, "%lld d %02lld h", s / 86400, s / 3600 % 24);
    return out;
}
