# Bring jars of Maven's central repository with the Ivy in PySpark. Sourced in the root of the
# project, with JAVA_HOME, and with `home`: what has the folders of jars.
ivy=$(ls .venv/lib/python3*/site-packages/pyspark/jars/ivy-*.jar)
jars() { # folder, group, artifact, version, an option of Ivy
    [ -e "$home/$1/.$4" ] && return
    rm -rf "${home:?}/$1"
    if "${JAVA_HOME:?}/bin/java" -jar "$ivy" -error -cache "$home/ivy" -confs default ${5:-} \
        -dependency "$2" "$3" "$4" -retrieve "$home/$1/[artifact]-[revision](-[classifier]).[ext]" \
        >"$home/$1.log" 2>&1; then
        touch "$home/$1/.$4"
    else
        rm -rf "${home:?}/$1"
        echo "$3 can't be had here ($home/$1.log): its tests will be skipped" >&2
    fi
}
