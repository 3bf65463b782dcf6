/* fuzz_tasks.c - any bytes as a file of questions: refused with the line's number, or every question has
 * tokens to run that fit the context. */
#include <string.h>

#include "fuzz.h"
#include "study/tasks.h"
#include "text/tokenizer.h"

enum { CONTEXT = 300 };

static const char tokenizer_json[] =
    "{\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true}],\"normalizer\":null,"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\xc4\xa0\":3},"
    "\"merges\":[\"a b\"]}}";

static const dsmoe_tokenizer *small_tokenizer(void)
{
    static dsmoe_tokenizer *tokenizer;
    tokenizer_text text = {tokenizer_json, sizeof tokenizer_json - 1, "tokenizer.json"};
    if (!tokenizer) require(tokenizer_parse(&text, NULL, &tokenizer, NULL) == DSMOE_OK);
    return tokenizer;
}

static void check_task(const task *t)
{
    require(t->n_ids >= 0 && t->n_ids <= CONTEXT);
    require(t->n_choices > 0 || (t->n_accepted > 0 && t->n_stops > 0));
    for (int64_t i = 0; i < t->n_choices; i++) {
        const task_choice *c = &t->choices[i];
        require(c->n_ids >= 2 && c->n_scored >= 1 && c->n_scored < c->n_ids);
        require(t->n_ids + c->n_ids - 1 <= CONTEXT);
    }
    if (t->n_choices == 0) task_accepts(t, "a 1,2.50");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    dsmoe_tasks *tasks;
    dsmoe_error error = {0};
    dsmoe_status status =
        tasks_parse((const char *)bytes, size, "fuzz", small_tokenizer(), CONTEXT, &tasks, &error);
    require((status == DSMOE_OK) == (tasks != NULL));
    if (status != DSMOE_OK) require_error(status, &error);
    for (int64_t i = 0; tasks && i < tasks->n; i++) check_task(&tasks->at[i]);
    dsmoe_tasks_free(tasks);
    return 0;
}
