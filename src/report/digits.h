/* digits.h - numbers as people read them. Each function writes into `out` and returns it. */
#ifndef DSMOE_REPORT_DIGITS_H
#define DSMOE_REPORT_DIGITS_H

enum { DIGITS = 48 };

/* Rounded to a whole number, in groups: "1,234,567". */
const char *digits_group(double number, char out[DIGITS]);
/* "950", "12.3K", "1.2M", "16.4B". */
const char *digits_short(double number, char out[DIGITS]);
/* At an axis: "0.5", "1000", "50K". */
const char *digits_tick(double number, char out[DIGITS]);
/* With at most `significant` digits, without zeros at the end: "0.0316", "2.5e-5", "12,000". */
const char *digits_plain(double number, int significant, char out[DIGITS]);
/* Always with a power of ten: "2e-3". */
const char *digits_power(double number, char out[DIGITS]);
/* With `decimals` digits after the point; a dash if the number is not finite. */
const char *digits_fixed(double number, int decimals, char out[DIGITS]);
/* "43 s", "12 min 05 s", "3 h 20 min". */
const char *digits_time(double seconds, char out[DIGITS]);

#endif
