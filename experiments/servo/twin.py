def identify(settings, run):
    pass
