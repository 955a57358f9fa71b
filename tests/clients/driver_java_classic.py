"""The Java driver 3.x with `drivers/java_classic/Client.java`, if Java and Maven are installed. Maven downloads the driver."""

from _drivers import run_java

if __name__ == "__main__":
    run_java("java_classic")
