/* task_file.c - reads questions and their answers from JSON lines (docs/tasks.md), as tokens.
 *
 * A choice is encoded together with the question, as the choice's first token may begin with the space
 * between them. The tokens beyond those of the question are the choice's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/utf8.h"
#include "formats/json.h"
#include "formats/whole_file.h"
#include "study/tasks.h"

enum { MOST_BYTES = 1 << 30, DEFAULT_TOKENS = 256, MOST_TOKENS = 65536 };

static dsmoe_status no_memory(dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for the questions");
}

/* ---- members of a line ------------------------------------------------------------------------ */

static dsmoe_status wrong_kind(const char *key, const char *wanted, const json_node *node,
                               dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_FORMAT, "\"%s\" must be %s, not %s", key, wanted,
                       json_kind_name(json_node_kind(node)));
}

/* Reads a string member, which must not contain a NUL; NULL if there is no such member. */
static dsmoe_status read_string(const json_node *line, const char *key, const char **text,
                                dsmoe_error *error)
{
    const json_node *node = json_node_member(line, key);
    size_t length;
    *text = NULL;
    if (!node || json_node_kind(node) == JSON_KIND_NULL) return DSMOE_OK;
    if (json_node_kind(node) != JSON_KIND_STRING) return wrong_kind(key, "a string", node, error);
    *text = json_node_string(node, &length);
    if (strlen(*text) != length)
        return status_fail(error, DSMOE_ERROR_FORMAT, "\"%s\" has a NUL in it", key);
    return DSMOE_OK;
}

static dsmoe_status keep_text(const json_node *node, const char *key, char **list, int *n,
                              dsmoe_error *error)
{
    size_t length;
    if (json_node_kind(node) != JSON_KIND_STRING) return wrong_kind(key, "a string", node, error);
    const char *text = json_node_string(node, &length);
    if (length == 0 || strlen(text) != length)
        return status_fail(error, DSMOE_ERROR_FORMAT, "\"%s\" has %s", key,
                           length ? "a NUL in it" : "an empty text");
    list[*n] = strdup(text);
    if (!list[*n]) return no_memory(error);
    ++*n;
    return DSMOE_OK;
}

/* Reads a string or an array of strings. */
static dsmoe_status read_texts(const json_node *node, const char *key, char **list, int *n,
                               dsmoe_error *error)
{
    if (json_node_kind(node) == JSON_KIND_STRING) return keep_text(node, key, list, n, error);
    if (json_node_kind(node) != JSON_KIND_ARRAY)
        return wrong_kind(key, "a string or an array of strings", node, error);
    size_t count = json_node_count(node);
    if (count == 0 || count > TASK_MOST_TEXTS)
        return status_fail(error, DSMOE_ERROR_FORMAT, "\"%s\" has %zu texts; 1 to %d are possible",
                           key, count, TASK_MOST_TEXTS);
    for (size_t i = 0; i < count; i++)
        STATUS_TRY(keep_text(json_node_item(node, i), key, list, n, error));
    return DSMOE_OK;
}

static dsmoe_status read_integer(const json_node *node, const char *key, int64_t min, int64_t max,
                                 int64_t *value, dsmoe_error *error)
{
    if (json_node_kind(node) != JSON_KIND_INTEGER)
        return wrong_kind(key, "an integer", node, error);
    *value = json_node_integer(node);
    if (*value < min || *value > max)
        return status_fail(error, DSMOE_ERROR_FORMAT, "\"%s\" is %lld; it can be %lld to %lld", key,
                           (long long)*value, (long long)min, (long long)max);
    return DSMOE_OK;
}

/* ---- tokens ----------------------------------------------------------------------------------- */

/* The ids of a text. If a question is empty, encode() begins it with BOS, or EOS if there is no BOS. */
typedef struct encoded {
    int32_t *ids;
    int64_t n;
} encoded;

static dsmoe_status encode(const dsmoe_tokenizer *tokenizer, const char *text, size_t length,
                           bool alone, encoded *out, dsmoe_error *error)
{
    size_t n;
    STATUS_TRY(
        dsmoe_tokenizer_encode(tokenizer, text, length, DSMOE_ENCODE_BOS, &out->ids, &n, error));
    out->n = (int64_t)n;
    if (!alone || dsmoe_tokenizer_adds_bos(tokenizer)) return DSMOE_OK;
    int32_t first = dsmoe_tokenizer_bos(tokenizer);
    if (first < 0) first = dsmoe_tokenizer_eos(tokenizer);
    if (first < 0)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "the question is empty, and the tokenizer has no token to begin with");
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    if (!ids) return no_memory(error);
    ids[0] = first;
    memcpy(ids + 1, out->ids, n * sizeof *ids);
    free(out->ids);
    *out = (encoded){ids, (int64_t)n + 1};
    return DSMOE_OK;
}

static int64_t count_characters(const char *text)
{
    int64_t n = 0;
    for (; *text; text++) n += !utf8_is_inside(*text);
    return n;
}

/* ---- questions with choices ------------------------------------------------------------------- */

/* The question, and the delimiter between it and a choice. Blanks at the end of a question belong to the
 * choice, as tokens begin with blanks and do not end with them. */
typedef struct question {
    char *text; /* to be freed */
    size_t length, n_blanks;
    const char *delimiter;
} question;

static dsmoe_status read_question(const json_node *line, question *q, dsmoe_error *error)
{
    const char *prompt, *asked;
    STATUS_TRY(read_string(line, "prompt", &prompt, error));
    STATUS_TRY(read_string(line, "question", &asked, error));
    STATUS_TRY(read_string(line, "delimiter", &q->delimiter, error));
    if (!prompt == !asked)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           prompt ? "it has both \"prompt\" and \"question\""
                                  : "it has neither \"prompt\" nor \"question\"");
    if (!q->delimiter) q->delimiter = " ";
    int made = asked ? asprintf(&q->text, "Question: %s\nAnswer:", asked)
                     : asprintf(&q->text, "%s", prompt);
    if (made < 0) {
        q->text = NULL;
        return no_memory(error);
    }
    q->length = (size_t)made;
    while (q->n_blanks < q->length && q->text[q->length - 1 - q->n_blanks] == ' ') q->n_blanks++;
    return DSMOE_OK;
}

/* Encodes question and choice together, and finds how many of the tokens are the choice's. */
static dsmoe_status encode_choice(const dsmoe_tasks *tasks, const question *q, int64_t n_question,
                                  const char *choice, encoded *whole, task_choice *out,
                                  dsmoe_error *error)
{
    char *text;
    int length = asprintf(&text, "%s%s%s", q->text, q->delimiter, choice);
    if (length < 0) return no_memory(error);
    dsmoe_status status =
        encode(tasks->tokenizer, text, (size_t)length, q->length == q->n_blanks, whole, error);
    free(text);
    STATUS_TRY(status);
    int64_t n_scored = whole->n - n_question;
    *out = (task_choice){.n_scored = n_scored > 0 ? n_scored : 1,
                         .n_characters = count_characters(choice)};
    return DSMOE_OK;
}

/* How many tokens all choices begin with that are not scored. */
static int64_t count_shared(const encoded *wholes, const task *t)
{
    int64_t n = wholes[0].n - t->choices[0].n_scored;
    for (int64_t c = 1; c < t->n_choices; c++) {
        int64_t most = wholes[c].n - t->choices[c].n_scored, i = 0;
        while (i < n && i < most && wholes[c].ids[i] == wholes[0].ids[i]) i++;
        n = i;
    }
    return n;
}

/* Keeps the tokens that all choices share once, and the rest of each choice. */
static dsmoe_status keep_choices(const encoded *wholes, task *t, dsmoe_error *error)
{
    int64_t n_before = count_shared(wholes, t) - 1;
    if (n_before < 0)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "the question is too short: it needs a token that is the same before "
                           "each of the choices");
    t->ids = malloc((size_t)(n_before > 0 ? n_before : 1) * sizeof *t->ids);
    if (!t->ids) return no_memory(error);
    memcpy(t->ids, wholes[0].ids, (size_t)n_before * sizeof *t->ids);
    t->n_ids = n_before;
    for (int64_t c = 0; c < t->n_choices; c++) {
        task_choice *choice = &t->choices[c];
        choice->n_ids = wholes[c].n - n_before;
        choice->ids = malloc((size_t)choice->n_ids * sizeof *choice->ids);
        if (!choice->ids) return no_memory(error);
        memcpy(choice->ids, wholes[c].ids + n_before, (size_t)choice->n_ids * sizeof *choice->ids);
    }
    return DSMOE_OK;
}

static dsmoe_status encode_choices(const dsmoe_tasks *tasks, const question *q,
                                   const json_node *choices, encoded *wholes, task *t,
                                   dsmoe_error *error)
{
    encoded asked = {0};
    dsmoe_status status = encode(tasks->tokenizer, q->text, q->length - q->n_blanks,
                                 q->length == q->n_blanks, &asked, error);
    free(asked.ids);
    STATUS_TRY(status);
    for (int64_t c = 0; c < t->n_choices; c++) {
        const json_node *node = json_node_item(choices, (size_t)c);
        size_t length;
        if (json_node_kind(node) != JSON_KIND_STRING)
            return wrong_kind("choices", "an array of strings", node, error);
        const char *text = json_node_string(node, &length);
        if (length == 0 || strlen(text) != length)
            return status_fail(error, DSMOE_ERROR_FORMAT, "choice %lld is empty or has a NUL in it",
                               (long long)c);
        STATUS_TRY(encode_choice(tasks, q, asked.n, text, &wholes[c], &t->choices[c], error));
    }
    return keep_choices(wholes, t, error);
}

static dsmoe_status read_choices(const dsmoe_tasks *tasks, const json_node *line, const question *q,
                                 task *t, dsmoe_error *error)
{
    const json_node *choices = json_node_member(line, "choices");
    const json_node *answer = json_node_member(line, "answer");
    if (json_node_kind(choices) != JSON_KIND_ARRAY)
        return wrong_kind("choices", "an array", choices, error);
    size_t n = json_node_count(choices);
    if (n < 2 || n > TASK_MOST_CHOICES)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%zu choices; 2 to %d are possible", n,
                           TASK_MOST_CHOICES);
    STATUS_TRY(read_integer(answer, "answer", 0, (int64_t)n - 1, &t->answer, error));
    t->choices = calloc(n, sizeof *t->choices);
    if (!t->choices) return no_memory(error);
    t->n_choices = (int64_t)n;
    encoded wholes[TASK_MOST_CHOICES] = {{0}};
    dsmoe_status status = encode_choices(tasks, q, choices, wholes, t, error);
    for (size_t i = 0; i < n; i++) free(wholes[i].ids);
    return status;
}

/* ---- questions whose answer is written -------------------------------------------------------- */

static dsmoe_status read_match(const json_node *line, task *t, dsmoe_error *error)
{
    static const char *const names[] = {"exact", "ignore_case", "number"};
    const char *name;
    STATUS_TRY(read_string(line, "match", &name, error));
    if (!name) return DSMOE_OK;
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i])) {
            t->match = (task_match)i;
            return DSMOE_OK;
        }
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "\"match\" is \"exact\", \"ignore_case\" or \"number\", not \"%.40s\"",
                       name);
}

static dsmoe_status read_written(const dsmoe_tasks *tasks, const json_node *line, const question *q,
                                 task *t, dsmoe_error *error)
{
    const json_node *stop = json_node_member(line, "stop");
    const json_node *most = json_node_member(line, "max_tokens");
    const char *after;
    encoded asked = {0};
    STATUS_TRY(
        read_texts(json_node_member(line, "answer"), "answer", t->accepted, &t->n_accepted, error));
    if (stop) STATUS_TRY(read_texts(stop, "stop", t->stops, &t->n_stops, error));
    t->max_tokens = DEFAULT_TOKENS;
    if (most) STATUS_TRY(read_integer(most, "max_tokens", 1, MOST_TOKENS, &t->max_tokens, error));
    STATUS_TRY(read_match(line, t, error));
    STATUS_TRY(read_string(line, "after", &after, error));
    t->after = after ? strdup(after) : NULL;
    if (!stop) t->stops[t->n_stops++] = strdup("\n");
    if ((after && !t->after) || !t->stops[0]) return no_memory(error);
    dsmoe_status status =
        encode(tasks->tokenizer, q->text, q->length, q->length == 0, &asked, error);
    t->ids = asked.ids;
    t->n_ids = asked.n;
    return status;
}

/* ---- a line ----------------------------------------------------------------------------------- */

static void task_free(task *t)
{
    for (int64_t i = 0; i < t->n_choices; i++) free(t->choices[i].ids);
    for (int i = 0; i < t->n_accepted; i++) free(t->accepted[i]);
    for (int i = 0; i < t->n_stops; i++) free(t->stops[i]);
    free(t->choices);
    free(t->after);
    free(t->ids);
}

/* Refuses keys that have no effect on a question with choices, or on one without. */
static dsmoe_status check_keys(const json_node *line, bool has_choices, dsmoe_error *error)
{
    static const char *const written[] = {"stop", "max_tokens", "match", "after"};
    for (int i = 0; has_choices && i < 4; i++)
        if (json_node_member(line, written[i]))
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "\"%s\" has no effect on a question with choices", written[i]);
    if (!has_choices && json_node_member(line, "delimiter"))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "\"delimiter\" has no effect without \"choices\"");
    return DSMOE_OK;
}

static dsmoe_status check_length(const dsmoe_tasks *tasks, const task *t, int64_t *needed,
                                 dsmoe_error *error)
{
    *needed = t->n_ids + t->max_tokens;
    for (int64_t i = 0; i < t->n_choices; i++)
        if (t->n_ids + t->choices[i].n_ids - 1 > *needed)
            *needed = t->n_ids + t->choices[i].n_ids - 1;
    if (*needed > tasks->n_ctx)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "the question and its answer take up to %lld tokens, the context has "
                           "%lld",
                           (long long)*needed, (long long)tasks->n_ctx);
    return DSMOE_OK;
}

static dsmoe_status read_task(dsmoe_tasks *tasks, const json_node *line, task *t,
                              dsmoe_error *error)
{
    question q = {0};
    int64_t needed;
    if (json_node_kind(line) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "a line must be an object, not %s",
                           json_kind_name(json_node_kind(line)));
    bool has_choices = json_node_member(line, "choices") != NULL;
    STATUS_TRY(check_keys(line, has_choices, error));
    if (!json_node_member(line, "answer"))
        return status_fail(error, DSMOE_ERROR_FORMAT, "it has no \"answer\"");
    dsmoe_status status = read_question(line, &q, error);
    if (status == DSMOE_OK)
        status = (has_choices ? read_choices : read_written)(tasks, line, &q, t, error);
    free(q.text);
    STATUS_TRY(status);
    STATUS_TRY(check_length(tasks, t, &needed, error));
    if (needed > tasks->longest) tasks->longest = needed;
    return DSMOE_OK;
}

static dsmoe_status add_task(dsmoe_tasks *tasks, const json_node *line, size_t number,
                             dsmoe_error *error)
{
    if (tasks->n == tasks->capacity) {
        int64_t capacity = tasks->capacity ? 2 * tasks->capacity : 64;
        task *grown = realloc(tasks->at, (size_t)capacity * sizeof *grown);
        if (!grown) return no_memory(error);
        tasks->at = grown;
        tasks->capacity = capacity;
    }
    task *t = &tasks->at[tasks->n++];
    *t = (task){.line = number};
    return read_task(tasks, line, t, error);
}

/* ---- the file --------------------------------------------------------------------------------- */

/* Removes "line 1, " from a message: the parser sees a single line, so it calls each "line 1". */
static const char *without_line(char *message)
{
    static const char one[] = "line 1, ";
    char *at = strstr(message, one);
    if (at) memmove(at, at + sizeof one - 1, strlen(at + sizeof one - 1) + 1);
    return !strncmp(message, ": ", 2) ? message + 2 : message;
}

static dsmoe_status parse_line(dsmoe_tasks *tasks, const char *text, size_t length, size_t number,
                               dsmoe_error *error)
{
    dsmoe_error reason;
    json_node *line = NULL;
    dsmoe_status status = json_node_parse(text, length, "", &line, &reason);
    if (status == DSMOE_OK) status = add_task(tasks, line, number, &reason);
    json_node_free(line);
    if (status == DSMOE_OK) return status;
    return status_fail(error, status, "%s: line %zu: %s", tasks->path, number,
                       without_line(reason.message));
}

static bool is_blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
    return true;
}

static dsmoe_status parse_lines(dsmoe_tasks *tasks, const char *bytes, size_t length,
                                dsmoe_error *error)
{
    size_t number = 1;
    if (length >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3)) bytes += 3, length -= 3;
    for (size_t at = 0; at < length; number++) {
        const char *line = bytes + at, *end = memchr(line, '\n', length - at);
        size_t n = end ? (size_t)(end - line) : length - at;
        if (!is_blank(line, n)) STATUS_TRY(parse_line(tasks, line, n, number, error));
        at += n + 1;
    }
    if (tasks->n == 0)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: there is no question in it",
                           tasks->path);
    return DSMOE_OK;
}

dsmoe_status tasks_parse(const char *bytes, size_t length, const char *path,
                         const dsmoe_tokenizer *tokenizer, int64_t n_ctx, dsmoe_tasks **tasks,
                         dsmoe_error *error)
{
    *tasks = NULL;
    dsmoe_tasks *made = calloc(1, sizeof *made);
    if (!made) return no_memory(error);
    *made = (dsmoe_tasks){.path = strdup(path), .tokenizer = tokenizer, .n_ctx = n_ctx};
    dsmoe_status status = made->path ? parse_lines(made, bytes, length, error) : no_memory(error);
    if (status == DSMOE_OK)
        *tasks = made;
    else
        dsmoe_tasks_free(made);
    return status;
}

dsmoe_status dsmoe_tasks_read(const char *path, const dsmoe_tokenizer *tokenizer, int64_t n_ctx,
                              dsmoe_tasks **tasks, dsmoe_error *error)
{
    if (!path || !tokenizer || !tasks || n_ctx < 2)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a file, a tokenizer, a context and a place for the tasks are needed");
    whole_file file = {0};
    *tasks = NULL;
    dsmoe_status status = whole_file_read(&file, path, MOST_BYTES, error);
    if (status == DSMOE_OK)
        status = tasks_parse(file.bytes, file.size, path, tokenizer, n_ctx, tasks, error);
    whole_file_free(&file);
    return status;
}

void dsmoe_tasks_free(dsmoe_tasks *tasks)
{
    if (!tasks) return;
    for (int64_t i = 0; i < tasks->n; i++) task_free(&tasks->at[i]);
    free(tasks->at);
    free(tasks->path);
    free(tasks);
}

int64_t dsmoe_tasks_count(const dsmoe_tasks *tasks) { return tasks->n; }
