/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/fd.h"
#include "client/path.h"
#include "common/changed.h"
#include "common/cli.h"
#include "common/revert_report.h"
#include "common/text.h"
#include "vweb/vweb.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/*
 * A request is one line: "r" or, for a dry run, "d", the time, and the path in base64. The reply is a line with the
 * time before the first change, then the document of `vrevert --json`, then a line "end".
 */

#define REQUEST_MAX 16384
#define REPLY_MAX (64 * 1024 * 1024)
/* Of each action, so many are listed; the counts are complete. */
#define LISTED_MAX 500
#define END "end"

struct web_restorer {
    GMutex lock;
    int fd;
    pid_t pid;
};

/* ---- one restore, in a process of its own ---------------------------------------------------------- */

struct work {
    const struct web *web;
    struct wb_place place;
    int64_t when;
    bool dry;
    struct wb_revert_report report;
    uint64_t listed[REVERT_ACTIONS];
};

static void on_event(void *data, const struct revert_event *event)
{
    struct work *work = data;

    if (event->kind == REVERT_EVENT_ACTION && work->listed[event->action]++ >= LISTED_MAX)
        return;
    wb_revert_report_event(&work->report, event);
}

static void run(struct work *work, const struct wb_moment *moment, int64_t before)
{
    _cleanup_changed_ struct wb_changed *changed = NULL;
    const struct wb_place *place = &work->place;
    struct revert_listener listener = {.event = on_event, .data = work};
    struct revert_request request = {.mount = place->mount, .path = place->path, .source = moment->path,
                                     .when = work->when, .set = wb_revert_set_new(), .dry = work->dry, .sync = true,
                                     .listener = &listener};
    struct revert_result result;
    struct stat st;

    work->report = (struct wb_revert_report){.place = place, .when = work->when, .dry = work->dry, .json = true};
    wb_revert_set_add(request.set, place->path);
    if (moment->path && wb_place_stat(place, &st) == 0 && S_ISDIR(st.st_mode))
        wb_changed_since(place->mount->root_fd, place->path, work->when, &changed);
    request.extent = changed ? wb_changed_extent_of_names : NULL;
    request.extent_data = changed;
    wb_revert_report_begin(&work->report);
    wb_revert_run(&request, &result);
    if (result.unplaced > 0 && !work->dry)
        wb_cli_fail(place->given, "some entries could not be restored, so nothing was removed");
    if (result.interrupted)
        wb_json_error("stopped", place->given, "stopped; the same restore finishes the work");
    wb_revert_report_end(&work->report, &result, before);
    wb_revert_set_free(request.set);
    g_object_unref(work->report.builder);
}

static void restore(struct work *work)
{
    _cleanup_moment_ struct wb_moment moment = {0};
    const struct wb_place *place = &work->place;
    struct wb_control_hello hello = {0};
    struct wb_error why = {""};
    char text[WB_WHEN_TEXT_MAX];
    struct stat st;
    int r = wb_mount_refresh(place->mount, &hello);

    printf("%s\n", wb_when_print_epoch(hello.now, text));
    if (r < 0) {
        wb_cli_fail(place->given, "the daemon does not answer");
        return;
    }
    if (wb_place_stat(place, &st) == 0 && (st.st_ino & WB_PAST_INODE)) {
        wb_cli_fail(place->given, "is a past state, which cannot change");
        return;
    }
    r = wb_moment_known(place->mount, wb_when_print_iso(work->when, text), work->when, &why);
    if (r == 0)
        r = wb_moment_at(place->mount, place->path, work->when, &moment, &why);
    if (r < 0)
        wb_cli_fail(place->given, "%s", why.text);
    else if (!moment.path && !*place->path)
        wb_cli_fail(place->given, "did not exist then; choose a later time");
    else
        run(work, &moment, hello.now);
}

/* Does not return. */
static void run_child(const struct web *web, int fd, const char *line) G_GNUC_NORETURN;
static void run_child(const struct web *web, int fd, const char *line)
{
    g_auto(GStrv) words = g_strsplit(line, " ", 3);
    struct work work = {.web = web, .dry = *line == 'd', .place = {.mount = web->place->mount}};
    _cleanup_fd_ int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    g_autofree char *encoded = g_strdup(words[2]);
    const char *below;
    gsize size;

    /* The page shows all errors. */
    if (dup2(fd, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0)
        _exit(WB_EXIT_FAILED);
    wb_json_start(stdout);
    work.when = g_ascii_strtoll(words[1], NULL, 10);
    work.place.path = (char *)g_base64_decode(encoded, &size);
    work.place.path = g_realloc(work.place.path, size + 1);
    work.place.path[size] = '\0';
    below = wb_path_below(work.place.path, web->place->path, &below) ? below : work.place.path;
    work.place.given = wb_path_join(strcmp(web->shown, "/") == 0 ? "" : web->shown, below);
    restore(&work);
    wb_json_finish();
    fflush(stdout);
    _exit(WB_EXIT_OK);
}

/* ---- the process that waits for requests ----------------------------------------------------------- */

/* A line without its newline; false: the server has ended. */
static bool read_line(int fd, GString *line)
{
    char c;
    ssize_t n;

    g_string_set_size(line, 0);
    while ((n = read(fd, &c, 1)) != 0 && line->len < REQUEST_MAX) {
        if (n < 0 && errno == EINTR && !wb_cli_interrupted())
            continue;
        if (n < 0)
            return false;
        if (c == '\n')
            return true;
        g_string_append_c(line, c);
    }
    return false;
}

static void wait_for(pid_t pid)
{
    bool passed_on = false;
    int status;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        if (wb_cli_interrupted() && !passed_on)
            kill(pid, SIGTERM);
        passed_on = passed_on || wb_cli_interrupted();
    }
}

static void serve(const struct web *web, int fd) G_GNUC_NORETURN;
static void serve(const struct web *web, int fd)
{
    g_autoptr(GString) line = g_string_new(NULL);

    while (!wb_cli_interrupted() && read_line(fd, line)) {
        pid_t pid = fork();

        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            run_child(web, fd, line->str);
        }
        if (pid > 0)
            wait_for(pid);
        /* On a line of its own, also after a child that was killed. */
        if (wb_fd_write(fd, "\n" END "\n", strlen("\n" END "\n"), -1) < 0)
            break;
    }
    _exit(0);
}

struct web_restorer *web_restorer_new(struct web *web)
{
    struct web_restorer *restorer;
    pid_t server = getpid(), pid;
    int ends[2];

    fflush(NULL);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        wb_cli_fail(NULL, "%s", g_strerror(errno));
        return NULL;
    }
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        close(ends[0]);
        if (getppid() == server)
            serve(web, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        wb_cli_fail(NULL, "%s", g_strerror(errno));
        return NULL;
    }
    restorer = g_new0(struct web_restorer, 1);
    g_mutex_init(&restorer->lock);
    restorer->fd = ends[0];
    restorer->pid = pid;
    return restorer;
}

struct web_restorer *web_restorer_free(struct web_restorer *restorer)
{
    if (!restorer)
        return NULL;
    close(restorer->fd);
    while (waitpid(restorer->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    g_mutex_clear(&restorer->lock);
    g_free(restorer);
    return NULL;
}

/* ---- the server's side ----------------------------------------------------------------------------- */

/* Up to the line END, in *reply. 0 or -errno. */
static int read_reply(int fd, GString *reply)
{
    char buffer[16384];

    while (!g_str_has_suffix(reply->str, "\n" END "\n")) {
        ssize_t n = read(fd, buffer, sizeof(buffer));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || reply->len > REPLY_MAX)
            return -EIO;
        g_string_append_len(reply, buffer, n);
    }
    return 0;
}

int web_restore(struct web *web, const char *path, int64_t when, bool dry, char **ret, int64_t *ret_before)
{
    struct web_restorer *restorer = web->restorer;
    g_autofree char *encoded = g_base64_encode((const guchar *)path, strlen(path));
    g_autofree char *line = g_strdup_printf("%c %" G_GINT64_FORMAT " %s\n", dry ? 'd' : 'r', when, encoded);
    g_autoptr(GString) reply = g_string_new(NULL);
    struct wb_time before = {0};
    char *document;
    int r;

    *ret = NULL;
    g_mutex_lock(&restorer->lock);
    r = wb_fd_write(restorer->fd, line, strlen(line), -1);
    if (r == 0)
        r = read_reply(restorer->fd, reply);
    g_mutex_unlock(&restorer->lock);
    document = strchr(reply->str, '\n');
    if (r < 0 || !document || document[1] != '{')
        return r < 0 ? r : -EIO;
    *document++ = '\0';
    if (wb_time_parse(reply->str, 0, &before) == 0)
        *ret_before = before.instant;
    *ret = g_strndup(document, strcspn(document, "\n"));
    return 0;
}
