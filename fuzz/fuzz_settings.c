/* fuzz_settings.c - any bytes as settings.json: refused without changing the settings, or every setting is
 * in its range and reads back the same after it is written. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "train/settings.h"

/* The settings as one line of text, to be freed. */
static char *line_of(const dsmoe_run_settings *settings)
{
    char *line = NULL;
    size_t length = 0;
    FILE *text = open_memstream(&line, &length);
    require(text != NULL);
    settings_put(text, settings);
    require(fclose(text) == 0);
    return line;
}

static void require_same(const dsmoe_run_settings *a, const dsmoe_run_settings *b)
{
    char *line_a = line_of(a), *line_b = line_of(b);
    require(strcmp(line_a, line_b) == 0);
    free(line_a);
    free(line_b);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    dsmoe_run_settings settings = dsmoe_run_settings_default(), before = settings;
    dsmoe_error error = {0};
    dsmoe_status status = settings_parse((const char *)bytes, size, "fuzz", &settings, &error);
    if (status != DSMOE_OK) {
        require_error(status, &error);
        require_same(&settings, &before);
        return 0;
    }
    require(settings_check(&settings, "fuzz", NULL) == DSMOE_OK);
    char *line = line_of(&settings);
    dsmoe_run_settings again = dsmoe_run_settings_default();
    require(settings_parse(line, strlen(line), "fuzz", &again, NULL) == DSMOE_OK);
    require_same(&settings, &again);
    free(line);
    return 0;
}
