/* logit_bias.c - reads a value of --logit-bias. */
#include "cli/logit_bias.h"

#include <math.h>
#include <string.h>

#include "cli/cli.h"

static bool parse_id(const char *digits, size_t length, int32_t *id)
{
    char word[16];
    int64_t number;
    if (length >= sizeof word) return false;
    memcpy(word, digits, length);
    word[length] = '\0';
    if (!cli_parse_int(word, 0, INT32_MAX, &number)) return false;
    *id = (int32_t)number;
    return true;
}

bool logit_bias_parse(const char *text, dsmoe_logit_bias *bias)
{
    size_t length = strspn(text, "0123456789");
    const char *value = text + length;
    if (!parse_id(text, length, &bias->id)) return false;
    if (*value != ':' && *value != '+' && *value != '-') return false;
    if (*value == ':') value++;
    bool is_negative = *value == '-';
    if (*value == '+' || *value == '-') value++;
    double size;
    if (is_negative && !strcmp(value, "inf"))
        size = INFINITY;
    else if (strchr("+-", *value) || !cli_parse_number(value, 0, INFINITY, &size))
        return false; /* strtod would take a second sign */
    bias->bias = is_negative ? -size : size;
    return true;
}
