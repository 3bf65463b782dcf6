/* fuzz_metrics.c - any bytes as the metrics.jsonl of a run: refused, or they give a whole page in which a
 * browser runs only the script that all pages have. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "report/page.h"
#include "report/run_page.h"

/* The only script is the one that all pages have, byte for byte. */
static void require_own_script(const char *page, size_t size)
{
    static const char tag[] = "<script";
    const char *own = memmem(page, size, tag, sizeof tag - 1);
    require(own);
    const char *text = own + strlen("<script>\n"), *end = page + size;
    size_t length = strlen(page_script);
    require((size_t)(end - text) > length && !memcmp(text, page_script, length));
    require(!memcmp(text + length, "</script>", 9));
    require(!memmem(text, (size_t)(end - text), tag, sizeof tag - 1));
}

static void try_page(const run_history *run)
{
    static const char first[] = "<!DOCTYPE html>", last[] = "</html>\n";
    char *page = NULL;
    size_t size = 0;
    series_point *smooth = series_smooth(&run->numbers[RUN_LOSS]);
    FILE *html = open_memstream(&page, &size);
    if (smooth && html) run_page_put(html, run, smooth, "fuzz");
    bool whole = html && fclose(html) == 0 && smooth;
    if (whole) {
        require(size > sizeof first + sizeof last);
        require(!memcmp(page, first, sizeof first - 1));
        require(!memcmp(page + size - (sizeof last - 1), last, sizeof last - 1));
        require_own_script(page, size);
    }
    free(page);
    free(smooth);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    run_history run;
    dsmoe_error error;
    FILE *file = size > 0 ? fmemopen((void *)bytes, size, "r") : NULL;
    if (!file) return 0;
    dsmoe_status status = run_history_parse(&run, line_reader_of(file, size), "fuzz", &error);
    if (status != DSMOE_OK) {
        require_error(status, &error);
        return 0;
    }
    require(run.n_unreadable <= run.n_lines && run.n_samples <= RUN_MAX_SAMPLES + 1);
    try_page(&run);
    run_history_free(&run);
    return 0;
}
