/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The command line of `wayback`. */

#include "wayback/error.h"
#include <glib.h>
#include <stdbool.h>

/* How the directories of snapshots are shown. */
enum wb_snapdir_mode { WB_SNAPDIR_HIDDEN, WB_SNAPDIR_VISIBLE, WB_SNAPDIR_OFF };
#define WB_SNAPDIR_NAME ".snapshot"

/* A generic option of mount(8) and its opposite: not given, suid, nosuid. */
enum wb_permit { WB_PERMIT_DEFAULT, WB_PERMIT_YES, WB_PERMIT_NO };

struct wb_options {
    char *source;     /* as given */
    char *mountpoint; /* as given; equal to `source` where it was left out */
    char *store;      /* NULL: SRC/.wayback */
    char *at;         /* the moment to show, as given; NULL: the present */
    char *branch;     /* where changes of a moment are kept; NULL: it is not to be changed */
    char at_sign;     /* the mark in NAME@TIME (wayback/at_name.h) */
    bool plain;       /* NAME@TIME means nothing: the mount is a layer of a branch */
    const char *cover; /* what is to be unmounted for this mount to end; NULL: itself */
    bool foreground;
    bool new_history;  /* another history, though the tree has one elsewhere */
    bool landlock;  /* root's daemon may open files of SRC and the store only */
    bool noseccomp; /* root's daemon may make all system calls */
    bool auto_remount; /* in the background: mounted again where the daemon dies */
    int kept_source;   /* SRC, opened by the supervisor before the first mount covered it; 0: not opened */
    bool nonempty;     /* MNT may have files, which the mount hides */
    bool dry_run;      /* only check whether SRC can be mounted at MNT */
    bool debug;
    bool history;     /* history=write or history=close */
    bool by_close;    /* history=close */
    bool read_only;
    bool lets_through; /* onfull=continue */
    bool prunes;      /* onfull=prune */
    bool allow_other;
    bool no_open;     /* the kernel is asked to open files without a request */
    bool noatime, nodiratime; /* reading does not move the access times of SRC */
    enum wb_permit suid, dev, exec;
    bool io_uring;    /* requests come through io_uring, or the mount fails */
    enum wb_snapdir_mode snapdir;
    char *snapdir_name;  /* what they are called                                       */
    bool snapnames_gmt;  /* snapnames=gmt: their entries are listed as "@GMT-..."     */
    bool help, version;
    bool check_config, config_path; /* say something about wayback.conf of `source`, mount nothing */
    bool json;        /* ... for programs */
    char **paths;     /* ... about these, from the top of the tree */
    GString *fuse;    /* what goes on to libfuse: "allow_other,noatime" */
};

/* 0, or -EINVAL with a line in `why`: wrong usage. */
int wb_options_parse(struct wb_options *options, int argc, char **argv, struct wb_error *why);
void wb_options_deinit(struct wb_options *options);
void wb_options_print_help(void);
