/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Single versions. The options about them are sent to the daemon as the text they would be in wayback.conf, so that it
 * is read and checked in one place, and means the same.
 */
#include "vprune.h"

#include "common/cli.h"
#include "common/json.h"
#include "common/text.h"
#include "wayback/pattern.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool vprune_says_something(const struct vprune_policy *policy)
{
    return policy->keep || policy->thin || policy->versions || policy->patterns || policy->from_file;
}

/* ---- the text -------------------------------------------------------------------------------- */

/* A quote ends a pattern in the file, unless there is a backslash before it; to the pattern both mean the quote. */
static void add_pattern(GString *text, const char *pattern)
{
    g_string_append(text, " \"");
    for (const char *at = pattern; *at; at++) {
        if (*at == '\\' && at[1])
            g_string_append_c(text, *at++);
        else if (*at == '"')
            g_string_append_c(text, '\\');
        g_string_append_c(text, *at);
    }
    g_string_append_c(text, '"');
}

static void add_key(GString *text, const char *key, const char *value)
{
    if (value)
        g_string_append_printf(text, "%s = %s\n", key, value);
}

/* g_free. */
static char *text_of(const struct vprune_policy *policy)
{
    GString *text = g_string_new(policy->patterns ? "[path" : "[history]\n");

    for (char **pattern = policy->patterns; pattern && *pattern; pattern++)
        add_pattern(text, *pattern);
    if (policy->patterns)
        g_string_append(text, "]\n");
    add_key(text, "keep", policy->keep);
    add_key(text, "thin", policy->thin);
    add_key(text, "keep-versions", policy->versions);
    return g_string_free(text, FALSE);
}

int vprune_policy_check(const struct vprune_policy *policy)
{
    g_autofree char *text = text_of(policy);
    unsigned lines = 1u + !!policy->keep + !!policy->thin + !!policy->versions;
    struct wb_pattern_mistake why;

    if (policy->from_file && (policy->keep || policy->thin || policy->versions || policy->patterns))
        return wb_cli_usage("--policy cannot be combined with --keep, --thin, --keep-versions or --pattern");
    if (!policy->from_file && lines == 1)
        return wb_cli_usage("--pattern requires --keep, --thin or --keep-versions");
    for (const char *at = text; *at; at++)
        lines -= *at == '\n';
    if (lines != 0 || strlen(text) >= WB_CONTROL_DATA_MAX)
        return wb_cli_usage("the value of an option has more than one line or is too long");
    for (char **pattern = policy->patterns; pattern && *pattern; pattern++) {
        struct wb_patterns *patterns = wb_patterns_new();
        int r = wb_patterns_add(patterns, *pattern, &why);

        wb_patterns_free(patterns);
        if (r < 0)
            return wb_cli_usage("--pattern: '%s' is not a valid pattern, at byte %zu: %s", *pattern, why.at + 1,
                                why.reason);
    }
    return WB_EXIT_OK;
}

static uint64_t all_bytes(const struct wb_control_thinned *sums)
{
    return sums->log_bytes + sums->image_bytes + sums->body_bytes;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void add(struct wb_control_thinned *sums, const struct wb_control_thinned *one)
{
    sums->logs += one->logs;
    sums->changed += one->changed;
    sums->versions += one->versions;
    sums->log_bytes += one->log_bytes;
    sums->image_bytes += one->image_bytes;
    sums->body_bytes += one->body_bytes;
    sums->kept += one->kept;
    sums->permille = one->permille;
    sums->held += one->held;
    if (one->held > 0)
        g_strlcpy(sums->directory, one->directory, sizeof(sums->directory));
    if (one->error)
        sums->error = one->error;
}

/* 0, with the mistake in *sums if there is one; or -errno. */
static int ask(const struct wb_place *place, const struct vprune_policy *policy, unsigned flags,
               struct wb_control_thinned *sums)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    const struct wb_control_thinned *reply = (const struct wb_control_thinned *)(const void *)request->data;
    g_autofree char *text = text_of(policy);
    uint64_t cursor = 0;
    int r;

    do {
        if (wb_cli_interrupted())
            return -ECANCELED;
        r = wb_request_prepare(request, WB_CONTROL_THIN, place->path);
        if (r < 0)
            return r;
        request->flags = flags | (policy->from_file ? WB_CONTROL_THIN_POLICY : 0);
        request->cursor = cursor;
        g_strlcpy((char *)request->data, policy->from_file ? "" : text, sizeof(request->data));
        r = wb_request_call(place->mount->root_fd, request);
        if (r < 0)
            break;
        add(sums, reply);
        memcpy(sums->mistake, reply->mistake, sizeof(sums->mistake));
        cursor = request->cursor;
        vprune_show(sums->permille, all_bytes(sums), false);
    } while (request->count > 0);
    vprune_show(0, 0, true);
    return r;
}

/* ---- output ---------------------------------------------------------------------------------- */

/* "permanently delete all versions in src except those kept by: keep = 30d"; g_free. */
static char *question_of(const struct wb_place *place, const struct vprune_policy *policy)
{
    g_autofree char *name = wb_text_printable(place->given);
    g_autofree char *text = policy->from_file ? g_strdup("wayback.conf") : text_of(policy);
    g_autofree char *joined = NULL;
    g_auto(GStrv) lines = NULL;

    g_strchomp(text);
    lines = g_strsplit(text, "\n", -1);
    joined = g_strjoinv(", ", policy->from_file || policy->patterns ? lines : lines + 1);
    return g_strdup_printf("permanently delete all versions in %s except those kept by: %s", name, joined);
}

static void report_json(const struct wb_place *place, const struct wb_control_thinned *sums)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", place->given);
    wb_json_bool(builder, "dry_run", vprune_dry_run);
    wb_json_int(builder, "logs", (int64_t)sums->logs);
    wb_json_int(builder, "changed", (int64_t)sums->changed);
    wb_json_int(builder, "versions", (int64_t)sums->versions);
    wb_json_int(builder, "bytes_logs", (int64_t)sums->log_bytes);
    wb_json_int(builder, "bytes_images", (int64_t)sums->image_bytes);
    wb_json_int(builder, "bytes_replaced", (int64_t)sums->body_bytes);
    wb_json_int(builder, "bytes", (int64_t)all_bytes(sums));
    wb_json_int(builder, "kept", (int64_t)sums->kept);
    wb_json_int(builder, "held", (int64_t)sums->held);
    json_builder_end_object(builder);
    wb_json_document(builder);
}

static void report(const struct wb_place *place, const struct wb_control_thinned *sums)
{
    g_autofree char *name = wb_text_printable(place->given);
    g_autofree char *versions = wb_text_count(sums->versions, "version", "versions");
    g_autofree char *files = wb_text_count(sums->changed, "file", "files");
    char bytes[WB_TEXT_SIZE_MAX];

    if (!vprune_json)
        printf("%s: %s of %s %s, %s %s\n", name, versions, files, vprune_dry_run ? "would be deleted" : "deleted",
               wb_text_size(all_bytes(sums), bytes), vprune_dry_run ? "would be freed" : "freed");
    if (sums->kept > 0)
        wb_cli_fail(place->given, "the versions of %" PRIu64 " files could not be thinned out: %s; run vfsck, then run "
                    "this again", sums->kept, wb_errno_text((int)sums->error));
    if (sums->held > 0) {
        g_autofree char *dir = wb_text_printable(sums->directory);

        wb_cli_fail(place->given, "versions of %" PRIu64 " files were kept because the damaged catalog of the "
                    "directory '%s' may refer to them; run vfsck", sums->held, dir);
    }
    /* With these errors. */
    if (vprune_json)
        report_json(place, sums);
}

static void complain(const struct wb_place *place, int error)
{
    switch (-error) {
    case EBUSY:
        wb_cli_fail(place->given, "another process is pruning it, or it is also mounted with -o ro, where readers may "
                                  "use any version; unmount that first");
        break;
    case EINVAL:
    case ENOTTY:
        wb_cli_fail(place->given, "is neither a file nor a directory, or the daemon is too old");
        break;
    case ENOENT:
        wb_cli_fail(place->given, "no such file or directory, now or at any time recorded");
        break;
    default:
        vprune_complain(place, error);
    }
}

int vprune_thin(const char *path, const struct vprune_policy *policy)
{
    _cleanup_place_ struct wb_place *place = wb_place_find(path, WB_MOUNT_WRITE);
    struct wb_control_thinned sums = {0};
    g_autofree char *question = NULL;
    int r;

    if (!place)
        return 0;
    r = ask(place, policy, WB_CONTROL_THIN_CHECK, &sums);
    if (r == 0 && *sums.mistake && !policy->from_file)
        return wb_cli_usage("%s", sums.mistake);
    if (r == 0 && *sums.mistake) {
        wb_cli_fail(place->given, "nothing was done: %s", sums.mistake);
        return 0;
    }
    question = question_of(place, policy);
    if (r == 0 && !vprune_confirmed(place, question))
        return 0;
    if (r == 0)
        r = ask(place, policy, vprune_dry_run ? WB_CONTROL_THIN_DRY : 0, &sums);
    if (r < 0)
        complain(place, r);
    else
        report(place, &sums);
    return 0;
}
